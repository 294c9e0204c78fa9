"""The JSON and text shapes of llama-server's answers."""

import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llamasup.fake.api import Abilities
    from llamasup.fake.engine import Engine, Job, Slot

_IDS = itertools.count(1)
_FINGERPRINT = "b0-fake"


@dataclass(frozen=True, slots=True)
class Identity:
    """What the server says that it serves. *aliases* are sorted; the first one is the name."""

    name: str
    path: str
    aliases: tuple[str, ...]
    train: int
    generates: bool


def sse(event: object) -> str:
    """Return *event* as one server-sent event."""
    return f"data: {json.dumps(event, separators=(',', ':'), ensure_ascii=False)}\n\n"


def text_of(message: object) -> str:
    """Return the text of a chat message, whose content may be a list of parts."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def includes_usage(body: dict[str, object]) -> bool:
    """Return whether a stream is to end with a usage chunk."""
    options = body.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


class Shape:
    """The answers of one endpoint that generates text."""

    kind = ""
    streamed = ""

    def __init__(self, model: str, job: "Job", reason: str, usage: bool) -> None:
        self.model = model
        self.reason = reason
        self.usage_asked = usage
        self.prompt = job.n_prompt
        self.id = f"chatcmpl-fake{next(_IDS):028}"
        self.created = int(time.time())
        self._started = time.monotonic()

    def usage(self, done: int) -> dict[str, object]:
        """Return the usage block."""
        return {
            "completion_tokens": done,
            "prompt_tokens": self.prompt,
            "total_tokens": self.prompt + done,
            "prompt_tokens_details": {"cached_tokens": 0},
        }

    def timings(self, done: int) -> dict[str, object]:
        """Return the timings block."""
        ms = max((time.monotonic() - self._started) * 1000, 0.001)
        return {
            "cache_n": 0,
            "prompt_n": self.prompt,
            "prompt_ms": ms,
            "prompt_per_token_ms": ms / self.prompt,
            "prompt_per_second": self.prompt / ms * 1000,
            "predicted_n": done,
            "predicted_ms": ms,
            "predicted_per_token_ms": ms / max(done, 1),
            "predicted_per_second": done / ms * 1000,
        }

    def whole(self, text: str, done: int) -> dict[str, object]:
        """Return the answer that is not streamed."""
        return {
            "choices": [self.choice(text)],
            "created": self.created,
            "model": self.model,
            "system_fingerprint": _FINGERPRINT,
            "object": self.kind,
            "usage": self.usage(done),
            "id": self.id,
            "timings": self.timings(done),
        }

    def chunk(self, choices: list[object], **more: object) -> dict[str, object]:
        """Return one event of a stream."""
        return {
            "choices": choices,
            "created": self.created,
            "id": self.id,
            "model": self.model,
            "system_fingerprint": _FINGERPRINT,
            "object": self.streamed,
            **more,
        }

    def choice(self, text: str) -> dict[str, object]:
        """Return the one choice of a whole answer."""
        raise NotImplementedError

    def events(self, token: str, *, first: bool) -> Iterator[dict[str, object]]:
        """Yield the events of one token."""
        raise NotImplementedError

    def last_events(self, done: int) -> Iterator[dict[str, object]]:
        """Yield the events after the last token."""
        raise NotImplementedError


class Chat(Shape):
    """/v1/chat/completions."""

    kind = "chat.completion"
    streamed = "chat.completion.chunk"

    def choice(self, text: str) -> dict[str, object]:
        message = {"role": "assistant", "content": text}
        return {"finish_reason": self.reason, "index": 0, "message": message}

    def events(self, token: str, *, first: bool) -> Iterator[dict[str, object]]:
        if first:
            yield self._delta({"role": "assistant", "content": None})
        yield self._delta({"content": token})

    def last_events(self, done: int) -> Iterator[dict[str, object]]:
        if self.usage_asked:
            yield self._delta({}, self.reason)
            yield self.chunk([], usage=self.usage(done), timings=self.timings(done))
        else:
            yield self._delta({}, self.reason) | {"timings": self.timings(done)}

    def _delta(self, delta: object, reason: str | None = None) -> dict[str, object]:
        return self.chunk([{"finish_reason": reason, "index": 0, "delta": delta}])


class Text(Shape):
    """/v1/completions."""

    kind = streamed = "text_completion"

    def choice(self, text: str, *, reason: str | None = "") -> dict[str, object]:
        reason = self.reason if reason == "" else reason
        return {"text": text, "index": 0, "logprobs": None, "finish_reason": reason}

    def events(self, token: str, *, first: bool) -> Iterator[dict[str, object]]:  # noqa: ARG002
        yield self.chunk([self.choice(token, reason=None)])

    def last_events(self, done: int) -> Iterator[dict[str, object]]:
        yield self.chunk([self.choice("")], usage=self.usage(done), timings=self.timings(done))


class Plain(Shape):
    """/completion, llama-server's own."""

    def whole(self, text: str, done: int) -> dict[str, object]:
        return {
            "index": 0,
            "content": text,
            "tokens": [],
            "id_slot": 0,
            "stop": True,
            "model": self.model,
            "tokens_predicted": done,
            "tokens_evaluated": self.prompt,
            "stop_type": "limit" if self.reason == "length" else "eos",
            "timings": self.timings(done),
        }

    def events(self, token: str, *, first: bool) -> Iterator[dict[str, object]]:  # noqa: ARG002
        yield {"index": 0, "content": token, "tokens": [], "stop": False, "id_slot": 0}

    def last_events(self, done: int) -> Iterator[dict[str, object]]:
        yield self.whole("", done)


def embeddings(model: str, vectors: list[list[float]], prompt: int) -> dict[str, object]:
    """Return an answer of /v1/embeddings."""
    return {
        "model": model,
        "object": "list",
        "usage": {"prompt_tokens": prompt, "total_tokens": prompt},
        "data": [
            {"embedding": vector, "index": index, "object": "embedding"}
            for index, vector in enumerate(vectors)
        ],
    }


def ranking(model: str, scores: list[float], prompt: int) -> dict[str, object]:
    """Return an answer of /v1/rerank, best first."""
    results = [{"index": index, "relevance_score": score} for index, score in enumerate(scores)]
    return {
        "model": model,
        "object": "list",
        "usage": {"prompt_tokens": prompt, "total_tokens": prompt},
        "results": sorted(results, key=lambda result: -result["relevance_score"]),
    }


def props(identity: Identity, slots: "list[Slot]", abilities: "Abilities") -> dict[str, object]:
    """Return an answer of /props."""
    params = {"n_predict": -1, "max_tokens": -1, "temperature": 0.8, "stream": False}
    return {
        "default_generation_settings": {"params": params, "n_ctx": slots[0].n_ctx},
        "total_slots": len(slots),
        "model_alias": identity.name,
        "model_ftype": "F16",
        "model_path": identity.path,
        "modalities": {"vision": False, "video": False, "audio": False},
        "endpoint_slots": abilities.slots,
        "endpoint_props": False,
        "endpoint_metrics": abilities.metrics,
        "ui": True,
        "ui_settings": {},
        "chat_template": "{{ messages }}",
        "chat_template_caps": {},
        "bos_token": "<s>",
        "eos_token": "</s>",
        "build_info": "b0-fake",
        "is_sleeping": False,
    }


def models(identity: Identity, n_ctx: int) -> dict[str, object]:
    """Return an answer of /v1/models."""
    entry = {
        "name": identity.name,
        "model": identity.name,
        "type": "model",
        "tags": [""],
        "capabilities": ["completion"],
        "details": {"format": "gguf"},
    }
    data = {
        "id": identity.name,
        "aliases": list(identity.aliases),
        "tags": [],
        "object": "model",
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "created": int(time.time()),
        "owned_by": "llamacpp",
        "meta": {
            "vocab_type": 1,
            "n_vocab": 32000,
            "n_ctx": n_ctx,
            "n_ctx_train": identity.train,
            "n_embd": 128,
            "n_params": 402048,
            "size": 805376,
            "ftype": "F16",
        },
    }
    return {"models": [entry], "object": "list", "data": [data]}


def metrics(engine: "Engine") -> str:
    """Return the page of /metrics, numbers with six significant digits as in the real one."""
    counters = engine.counters
    busy = sum(slot.busy for slot in engine.slots)
    rows: list[tuple[str, str, str, float]] = [
        ("prompt_tokens_total", "counter", "Prompt tokens processed", counters.prompt_tokens),
        ("prompt_tokens_cached_total", "counter", "Prompt tokens from the cache", 0),
        ("prompt_seconds_total", "counter", "Prompt processing time", counters.prompt_seconds),
        ("tokens_predicted_total", "counter", "Tokens generated", counters.predicted_tokens),
        (
            "tokens_predicted_seconds_total",
            "counter",
            "Generation time",
            counters.predicted_seconds,
        ),
        ("n_decode_total", "counter", "Calls of llama_decode()", counters.decodes),
        ("n_tokens_max", "counter", "Largest observed sequence", counters.longest),
        ("spec_decode_num_draft_tokens_total", "counter", "Speculative: drafted", 0),
        ("spec_decode_num_accepted_tokens_total", "counter", "Speculative: accepted", 0),
        ("spec_decode_num_drafts_total", "counter", "Speculative: drafts", 0),
        ("prompt_tokens_seconds", "gauge", "Average prompt throughput", 0),
        ("predicted_tokens_seconds", "gauge", "Average generation throughput", 0),
        ("requests_processing", "gauge", "Requests processing", busy),
        ("requests_deferred", "gauge", "Requests deferred", engine.deferred),
        ("n_busy_slots_per_decode", "gauge", "Average busy slots per decode", busy),
    ]
    return "".join(
        f"# HELP llamacpp:{name} {about}\n# TYPE llamacpp:{name} {kind}\n"
        f"llamacpp:{name} {value:.6g}\n"
        for name, kind, about, value in rows
    )
