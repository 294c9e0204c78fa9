"""Start of the fake llama-server: parse, bind, load, serve, stop, in the real one's order."""

import os
import signal
import sys
import time

sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]  # saves 10 ms of the start

import asyncio  # noqa: E402  (after the line above)

from llamasup.fake.api import Abilities, Api  # noqa: E402
from llamasup.fake.control import Control  # noqa: E402
from llamasup.fake.engine import Engine, Slot, layout  # noqa: E402
from llamasup.fake.faults import Faults, count_start, end  # noqa: E402
from llamasup.fake.http import Connection  # noqa: E402
from llamasup.fake.log import Log  # noqa: E402
from llamasup.fake.options import Settings, UsageError, parse  # noqa: E402
from llamasup.fake.shapes import Identity  # noqa: E402

_TRAIN = 131072
_ANY_MODEL = "/fake"  # models whose path begins like this are always there


def main() -> None:
    """Run the command line; ends the process."""
    # The real one has no handlers before its model is loaded; Python makes INT a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        settings = parse(sys.argv[1:], dict(os.environ))
    except UsageError as exc:
        print(exc, file=sys.stderr)
        sys.exit(1)
    faults = Faults(
        os.environ.get("LLAMASUP_FAKE", ""), count_start(os.environ.get("LLAMASUP_FAKE_COUNTER"))
    )
    faults.at("start")
    code = asyncio.run(Server(settings, faults).run())
    # No clean-up of what may still hang: the real one does not wait for its threads either.
    sys.stdout.flush()
    os._exit(code)


class Server:
    """One life of the fake."""

    def __init__(self, settings: Settings, faults: Faults) -> None:
        self._settings = settings
        self._faults = faults
        self._log = Log()
        train = int(faults.number("train", _TRAIN))
        count, each, self._unified = layout(settings, train)
        if faults.has("wrong_ctx"):
            each = 256
        self._slots = [Slot(id=n, n_ctx=each) for n in range(count + faults.has("wrong_slots"))]
        self._engine = Engine(self._slots, faults, self._log)
        self._api = Api(self._engine, self._identity(train), self._abilities())
        self._connections: set[Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._control: asyncio.Server | None = None
        self._phase = "start"
        self._ended = asyncio.Event()
        self._terms = 0
        self._later: list[asyncio.Task[None]] = []

    def _identity(self, train: int) -> Identity:
        path = self._settings.text("--model")
        aliases = tuple(sorted({a for a in self._settings.text("--alias").split(",") if a}))
        name = aliases[0] if aliases else path
        if self._faults.has("wrong_model"):
            name, path, aliases = "another", "/models/another.gguf", ("another",)
        return Identity(name, path, aliases, train, not self._settings.flag("--rerank"))

    def _abilities(self) -> Abilities:
        settings = self._settings
        return Abilities(
            keys=frozenset(settings.keys),
            embeddings=settings.flag("--embedding"),
            pooling=settings.text("--pooling"),
            rerank=settings.flag("--rerank") or settings.text("--pooling") == "rank",
            metrics=settings.flag("--metrics"),
            slots=settings.flag("--slots", default=True),
            ping=float(settings.number("--sse-ping-interval", 30)),
        )

    def state(self) -> dict[str, object]:
        """Describe everything to the control socket."""
        return {
            "pid": os.getpid(),
            "start": self._faults.start,
            "phase": self._phase,
            "in_flight": self._api.in_flight,
            "deferred": self._engine.deferred,
            "inferences": self._engine.inferences,
            "connections": len(self._connections),
            "left": sum(each.is_forsaken for each in self._connections),
            "seen": self._engine.seen,
            "waiting": dict(self._faults.gates.waiting),
            "faults": dict(self._faults.words),
        }

    async def run(self) -> int:
        """Live; return the exit code."""
        log = self._log
        log.info("srv  llama_server", "initializing ...")
        if path := os.environ.get("LLAMASUP_FAKE_CONTROL"):
            control = Control(path.replace("{pid}", str(os.getpid())), self._faults, self.state)
            self._control = await control.listen()
        self._misbehave()
        await self._faults.pause("bind_late")
        if not await self._bind():
            return 1
        self._phase = "loading"
        log.info("srv    load_model", f"loading model '{self._settings.text('--model')}'")
        self._faults.at("loading")
        await self._load()
        if (
            error := await asyncio.to_thread(model_error, self._settings.text("--model"))
        ) is not None:
            log.info("llama_model_load", f"error loading model: {error}", "E")
            log.info("srv  llama_server", "exiting due to model loading error", "E")
            return 1
        self._loaded()
        await self._ended.wait()
        log.info("srv    operator()", "operator(): cleaning up before exit...")
        await self._faults.pause("stop")
        return 0

    def _misbehave(self) -> None:
        """Do what is asked for at the start and has nothing to do with serving."""
        faults = self._faults
        if faults.has("longline"):
            self._log.raw(b"x" * int(faults.number("longline")) + b"\n")
        if faults.has("print"):
            self._log.info("srv", faults.words["print"].replace("_", " "))
        if faults.has("flood"):
            self._log.flood(faults.number("flood"))
        if faults.has("fork_setsid"):
            leave_grandchild()
        if faults.has("stdin_eof"):
            asyncio.get_running_loop().add_reader(0, end_with_stdin)

    async def _bind(self) -> bool:
        """Listen on all hosts asked for; a host that ends in .sock is a path."""
        loop = asyncio.get_running_loop()
        port = self._settings.number("--port", 8080)
        for host in self._settings.text("--host", "127.0.0.1").split(","):
            try:
                server = (
                    await loop.create_unix_server(self._connect, _free(host))
                    if host.endswith(".sock")
                    else await loop.create_server(self._connect, host, port, reuse_address=True)
                )
            except OSError:
                self._log.info(
                    "srv         start",
                    f"couldn't bind HTTP server socket, hostname: {host}, port: {port}",
                    "E",
                )
                return False
            self._servers.append(server)
        return True

    def _connect(self) -> Connection:
        return Connection(self._api.handle, self._connections)

    async def _load(self) -> None:
        if not self._faults.has("load_cpu"):
            await self._faults.pause("load")
            return
        until = time.monotonic() + self._faults.number("load")
        while time.monotonic() < until:
            busy = time.monotonic() + 0.01
            while time.monotonic() < busy:
                pass
            await asyncio.sleep(0.01)

    def _loaded(self) -> None:
        """Tell the world, and take signals from now on."""
        settings = self._settings
        self._log.info(
            "srv    load_model",
            f"initializing, n_slots = {len(self._slots)}, n_ctx_slot = {self._slots[0].n_ctx}, "
            f"kv_unified = '{str(self._unified).lower()}'",
        )
        self._api.loading = False
        self._log.info("srv  llama_server", "model loaded")
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._term)
        hosts = settings.text("--host", "127.0.0.1").split(",")
        port = settings.number("--port", 8080)
        for host in hosts:
            where = f"unix://{host}" if host.endswith(".sock") else f"http://{host}:{port}"
            self._log.info("srv  llama_server", f"listening on {where}")
        self._phase = "loaded"
        self._later.append(loop.create_task(self._after_the_first_answer()))
        if self._faults.has("exit_after"):
            delay, _, code = self._faults.words["exit_after"].partition(":")
            loop.call_later(float(delay), end, int(code or 0))

    async def _after_the_first_answer(self) -> None:
        await self._api.answered.wait()
        self._phase = "ready"
        while not self._faults.words.keys().isdisjoint({"exit_at", "signal_at"}):
            await asyncio.sleep(0.01)  # let the answer reach the client first
            self._faults.at("ready")

    def _term(self) -> None:
        """Handle SIGTERM and SIGINT: close the door, cut the streams; the second one is the end."""
        if self._faults.has("ignore_term"):
            return
        self._terms += 1
        if self._terms == 2:
            self._log.raw(b"Received second interrupt, terminating immediately.\n")
            end(1)
        self._phase = "ending"
        self._engine.ending.set()
        for server in self._servers:
            server.close()
        loop = asyncio.get_running_loop()
        self._later.append(loop.create_task(self._wait_for_requests()))

    async def _wait_for_requests(self) -> None:
        """End once no request is being worked on; idle connections do not count."""
        while any(connection.current is not None for connection in self._connections):
            await asyncio.sleep(0.005)
        self._ended.set()


def _free(path: str) -> str:
    """Return *path*; asyncio would remove a stale socket there, the real one fails."""
    if os.path.lexists(path):
        raise FileExistsError(path)
    return path


def model_error(path: str) -> str | None:
    """Return what is wrong with the model file, in the words of the real one. May block."""
    if path.startswith(_ANY_MODEL):
        return None
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
    except OSError as exc:
        return f"failed to open GGUF file '{path}' ({exc.strerror})"
    if len(magic) < 4:
        return "failed to read magic"
    if magic != b"GGUF":
        text = magic.decode("latin-1")
        return f"invalid magic characters: '{text}', expected 'GGUF'"
    return None


def end_with_stdin() -> None:
    """End if there is nothing more to read on stdin."""
    if not os.read(0, 1 << 16):
        end(1)


def leave_grandchild() -> None:
    """Fork a process into its own session that keeps our descriptors and ignores SIGTERM."""
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
        os._exit(0)


if __name__ == "__main__":
    main()
