"""The endpoints of the fake, with the shapes of llama-server 11434."""

import asyncio
import contextlib
import time
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from llamasup.fake import shapes
from llamasup.fake.engine import Engine, Job, magic_of, wanted
from llamasup.fake.http import Connection, HttpError, Request
from llamasup.fake.shapes import Identity

_DIMENSIONS = 128
_PUBLIC = frozenset({"/health", "/v1/health", "/"})
_GARBAGE = b"\x00\xff\x13\x37 this is not HTTP \r\n\r\n" * 8

Handler = Callable[[Request, Connection], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Abilities:
    """What the command line switched on."""

    keys: frozenset[str]
    embeddings: bool
    pooling: str
    rerank: bool
    metrics: bool
    slots: bool
    ping: float  # seconds of silence in a stream; negative = never


class Api:
    """Answers requests. *loading* holds until the model is there."""

    def __init__(self, engine: Engine, identity: Identity, abilities: Abilities) -> None:
        self.loading = True
        self.in_flight = 0
        self.answered = asyncio.Event()  # the first inference request
        self._engine = engine
        self._faults = engine.faults
        self._identity = identity
        self._abilities = abilities
        self._routes = self._table()

    def _table(self) -> dict[tuple[str, str], Handler]:
        table: dict[tuple[str, str], Handler] = {}
        for paths, method, handler in (
            ("/health /v1/health", "GET", self._health),
            ("/props", "GET", self._props),
            ("/props", "POST", self._set_props),
            ("/slots", "GET", self._slots),
            ("/metrics", "GET", self._metrics),
            ("/models /v1/models", "GET", self._models),
            ("/lora-adapters", "GET", self._lora),
            ("/tokenize", "POST", self._tokenize),
            ("/v1/chat/completions /chat/completions", "POST", self._chat),
            ("/v1/completions", "POST", self._completions),
            ("/completion /completions", "POST", self._completion),
            ("/v1/embeddings /embeddings", "POST", self._embeddings),
            ("/rerank /reranking /v1/rerank /v1/reranking", "POST", self._rerank),
        ):
            table.update({(method, path): handler for path in paths.split()})
        return table

    async def handle(self, request: Request, connection: Connection) -> None:
        """Answer one request."""
        if self._faults.has("garbage"):
            connection.write_raw(_GARBAGE)
            connection.close()
            return
        if request.method == "OPTIONS":
            connection.answer(200, b"", "text/plain")
            return
        if self.loading:
            raise HttpError(503, "Loading model")
        self._check_key(request)
        method = "GET" if request.method == "HEAD" else request.method
        handler = self._routes.get((method, request.path))
        if handler is None:
            raise HttpError(404, "File Not Found")
        if self._faults.has("huge") and method == "GET":
            connection.answer(200, b" " * int(self._faults.number("huge") * (1 << 20)))
            return
        await handler(request, connection)

    def _check_key(self, request: Request) -> None:
        if not self._abilities.keys or request.path in _PUBLIC:
            return
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = given or request.headers.get("x-api-key", "")
        if given not in self._abilities.keys:
            raise HttpError(401, "Invalid API Key")

    # --- state ---

    async def _health(self, _request: Request, connection: Connection) -> None:
        wanted = self._faults.words.get("health", "")
        if wanted.isdigit() and 400 <= int(wanted) < 600:
            raise HttpError(int(wanted), "asked to be ill")
        await self._faults.pause("health")
        connection.answer(200, {"status": "ok"})

    async def _props(self, _request: Request, connection: Connection) -> None:
        connection.answer(200, shapes.props(self._identity, self._engine.slots, self._abilities))

    async def _set_props(self, _request: Request, _connection: Connection) -> None:
        raise HttpError(
            501,
            "This server does not support changing global properties. Start it with `--props`",
        )

    async def _slots(self, request: Request, connection: Connection) -> None:
        if not self._abilities.slots or self._faults.has("no_slots"):
            raise HttpError(501, "This server does not support slots endpoint.")
        await self._wait_like_the_old_one()
        slots = self._engine.slots
        if "fail_on_no_slot" in request.target and all(slot.busy for slot in slots):
            raise HttpError(503, "no slot available")
        connection.answer(200, [slot.shown() for slot in slots])

    async def _metrics(self, _request: Request, connection: Connection) -> None:
        if not self._abilities.metrics or self._faults.has("no_metrics"):
            raise HttpError(
                501, "This server does not support metrics endpoint. Start it with `--metrics`"
            )
        await self._wait_like_the_old_one()
        stamp = f"Process-Start-Time-Unix: {int(time.monotonic() * 1e6)}\r\n"
        text = shapes.metrics(self._engine)
        connection.answer(200, text.encode(), "text/plain; version=0.0.4", stamp)

    async def _wait_like_the_old_one(self) -> None:
        while self._faults.has("oldapi") and any(slot.busy for slot in self._engine.slots):
            await asyncio.sleep(0.02)

    async def _models(self, _request: Request, connection: Connection) -> None:
        connection.answer(200, shapes.models(self._identity, self._engine.slots[0].n_ctx))

    async def _lora(self, _request: Request, connection: Connection) -> None:
        # Goes through the main loop of the real one, so it hangs where decoding hangs.
        if self._faults.has("wedge_after") and any(slot.busy for slot in self._engine.slots):
            await asyncio.Event().wait()
        connection.answer(200, [])

    async def _tokenize(self, request: Request, connection: Connection) -> None:
        words = str(request.json().get("content", "")).split()
        connection.answer(200, {"tokens": [sum(word.encode()) % 30000 for word in words]})

    # --- inference ---

    async def _chat(self, request: Request, connection: Connection) -> None:
        body = request.json()
        messages = body.get("messages")
        if messages is None:
            raise HttpError(400, "'messages' is required")
        if not isinstance(messages, list):
            raise HttpError(400, "'messages' must be an array")
        prompt = " ".join(shapes.text_of(message) for message in messages)
        await self._generate(request, connection, body, prompt, shapes.Chat)

    async def _completions(self, request: Request, connection: Connection) -> None:
        body = request.json()
        if "prompt" not in body:
            raise HttpError(400, "'prompt' is required")
        await self._generate(request, connection, body, str(body["prompt"]), shapes.Text)

    async def _completion(self, request: Request, connection: Connection) -> None:
        body = request.json()
        if "prompt" not in body:
            raise HttpError(400, "'prompt' is required")
        await self._generate(request, connection, body, str(body["prompt"]), shapes.Plain)

    async def _generate(
        self,
        request: Request,
        connection: Connection,
        body: dict[str, object],
        prompt: str,
        shape: type[shapes.Shape],
    ) -> None:
        limit = body.get("max_tokens", body.get("max_completion_tokens", body.get("n_predict")))
        magic = magic_of(prompt)
        count, reason = wanted(limit, magic, self._faults)
        job = Job(prompt, count, magic)
        answer = shape(self._identity.name, job, reason, shapes.includes_usage(body))
        if body.get("stream"):
            work = self._stream(job, answer, connection)
        else:
            work = self._whole(job, answer, connection)
        await self._until_left(work, request, connection)

    async def _whole(self, job: Job, answer: shapes.Shape, connection: Connection) -> None:
        async with self._engine.slot(job) as slot:
            text = [token async for token in self._engine.tokens(job, slot)]
        connection.answer(200, answer.whole("".join(text), len(text)))

    async def _stream(self, job: Job, answer: shapes.Shape, connection: Connection) -> None:
        async with self._engine.slot(job) as slot:
            done = 0
            async for token in self._engine.tokens(job, slot):
                if done == 0:
                    # As in the real one: no byte before the first token is there.
                    connection.begin_stream()
                for event in answer.events(token, first=done == 0):
                    await connection.send(shapes.sse(event))
                done += 1
            if done == 0:
                connection.begin_stream()
            for event in answer.last_events(done):
                await connection.send(shapes.sse(event))
            await connection.send("data: [DONE]\n\n")
            connection.end_stream()

    async def _embeddings(self, request: Request, connection: Connection) -> None:
        if not self._abilities.embeddings:
            raise HttpError(
                501, "This server does not support embeddings. Start it with `--embeddings`"
            )
        if self._abilities.pooling in ("", "none"):
            raise HttpError(
                400,
                "Pooling type 'none' is not OAI compatible. Please use a different pooling type",
            )
        given = request.json().get("input")
        if given is None:
            raise HttpError(400, '"input" or "content" must be provided')
        texts = [str(each) for each in given] if isinstance(given, list) else [str(given)]
        await self._until_left(self._embed(texts, connection), request, connection)

    async def _embed(self, texts: list[str], connection: Connection) -> None:
        job = Job(" ".join(texts), 0, magic_of(" ".join(texts)))
        async with self._engine.slot(job):
            vectors = [_vector(text) for text in texts]
        connection.answer(200, shapes.embeddings(self._identity.name, vectors, job.n_prompt))

    async def _rerank(self, request: Request, connection: Connection) -> None:
        if not self._abilities.rerank:
            raise HttpError(
                501, "This server does not support reranking. Start it with `--reranking`"
            )
        body = request.json()
        documents = body.get("documents", body.get("texts"))
        if not isinstance(body.get("query"), str):
            raise HttpError(400, '"query" must be provided')
        if not isinstance(documents, list) or not documents:
            raise HttpError(400, '"documents" must be a non-empty string array')
        await self._until_left(
            self._rank(str(body["query"]), [str(each) for each in documents], connection),
            request,
            connection,
        )

    async def _rank(self, query: str, documents: list[str], connection: Connection) -> None:
        job = Job(f"{query} {' '.join(documents)}", 0, magic_of(query))
        async with self._engine.slot(job):
            words = set(query.split())
            scores = [float(len(words & set(each.split()))) for each in documents]
        connection.answer(200, shapes.ranking(self._identity.name, scores, job.n_prompt))

    async def _until_left(
        self, work: Awaitable[None], request: Request, connection: Connection
    ) -> None:
        """Do *work* until it is done, the client has left, or SIGTERM cuts a stream."""
        loop = asyncio.get_running_loop()
        self.in_flight += 1
        job = asyncio.ensure_future(work)
        left = loop.create_task(request.gone.wait())
        ending = loop.create_task(self._cut(connection))
        ping = loop.create_task(self._ping(connection))
        try:
            waits = {job, ending} if self._faults.has("cancel_deaf") else {job, left, ending}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if job.done():
                await job
        finally:
            self.in_flight -= 1
            for task in (job, left, ending, ping):
                task.cancel()
            await asyncio.gather(job, return_exceptions=True)
        if not job.cancelled():
            self.answered.set()
        elif ending.done() and not ending.cancelled():
            connection.close()

    async def _cut(self, connection: Connection) -> None:
        """Return once a stream is to be cut: at its next ping after SIGTERM, as the real one does.

        Requests without a byte sent are not looked at: they keep the real one alive as well.
        """
        await self._engine.ending.wait()
        while not connection.streaming:
            await asyncio.sleep(3600)
        await asyncio.sleep(max(self._abilities.ping, 0.05))
        with contextlib.suppress(ConnectionError):
            await connection.send(":\n\n")

    async def _ping(self, connection: Connection) -> None:
        if self._abilities.ping <= 0:
            return
        while True:
            await asyncio.sleep(self._abilities.ping)
            if connection.streaming and not self._engine.ending.is_set():
                await connection.send(":\n\n")


def _vector(text: str) -> list[float]:
    """Return a unit vector that depends on *text* alone."""
    seeds = (zlib.crc32(text.encode(), place) for place in range(_DIMENSIONS))
    raw = [seed % 255 - 127.5 for seed in seeds]
    length = sum(each * each for each in raw) ** 0.5
    return [each / length for each in raw]
