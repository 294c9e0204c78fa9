"""The one request that an instance must answer before it counts as ready."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from llamasup.config.spec import Kind, Spec
from llamasup.probe.http import Answer, ProbeError, ask, field


class Warmup(Enum):
    """How one try ended, other than by a refusal."""

    DONE = auto()
    NOT_YET = auto()  # no answer, a broken one or a 5xx: worth another try


@dataclass(frozen=True, slots=True)
class Refused:
    """The server says that it will never answer this as it is configured."""

    reason: str


Outcome: TypeAlias = Warmup | Refused

_CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
_COMPLETION = {"prompt": "hi", "n_predict": 1}
_EMBEDDING = {"input": "hi"}
_RERANK = {"query": "hi", "documents": ["hi"]}


async def warm_up(spec: Spec, socket: str) -> Outcome:
    """Send the request that fits the kind of *spec* to *socket* and judge the answer.

    Takes as long as the server takes (the caller's deadline is that of the load).
    """
    try:
        match spec.kind:
            case Kind.CHAT:
                return await _chat(spec, socket)
            case Kind.EMBEDDING:
                return _judge(await _post(spec, socket, "/v1/embeddings", _EMBEDDING), "data")
            case Kind.RERANK:
                return _judge(await _post(spec, socket, "/v1/rerank", _RERANK), "results")
    except ProbeError:
        return Warmup.NOT_YET


async def _chat(spec: Spec, socket: str) -> Outcome:
    """Ask for one token, without the chat template if that is what does not work.

    Some models have no template, others one that refuses a single message; both complete text.
    """
    outcome = _judge(await _post(spec, socket, "/v1/chat/completions", _CHAT), "choices")
    if outcome is Warmup.DONE:
        return outcome
    plain = _judge(await _post(spec, socket, "/completion", _COMPLETION), "content")
    return plain if plain is Warmup.DONE else outcome


async def _post(spec: Spec, socket: str, target: str, body: object) -> Answer:
    return await ask(socket, target, body=body, key=spec.api_key, timeout=None)


def _judge(answer: Answer, result: str) -> Outcome:
    """Judge *answer*, whose field *result* must be there; 4xx and 501 are errors of the config."""
    if answer.status == 200:
        return Warmup.NOT_YET if field(answer.json(), result) in (None, []) else Warmup.DONE
    if 400 <= answer.status < 500 or answer.status == 501:
        return Refused(f"the warm-up request was refused ({answer.status}): {answer.message()}")
    return Warmup.NOT_YET
