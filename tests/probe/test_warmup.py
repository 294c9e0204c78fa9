"""The warm-up request of each kind."""

import json

import pytest

from llamasup.config.spec import Kind
from llamasup.probe.warmup import Refused, Warmup, warm_up
from tests.probe.conftest import spec

GOOD = {
    "/v1/chat/completions": {"choices": [{}]},
    "/completion": {"content": ""},
    "/v1/embeddings": {"data": [{}]},
    "/v1/rerank": {"results": [{}]},
}


def answering(answers: dict[str, tuple[int, object]], seen: list[str]):
    async def talk(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        target = head.split()[1].decode()
        seen.append(target)
        status, body = answers[target]
        payload = json.dumps(body).encode()
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(payload)))
        writer.write(payload)
        await writer.drain()

    return talk


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        (Kind.CHAT, "/v1/chat/completions"),
        (Kind.EMBEDDING, "/v1/embeddings"),
        (Kind.RERANK, "/v1/rerank"),
    ],
)
@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (200, None, Warmup.DONE),
        (200, {}, Warmup.NOT_YET),
        (200, [], Warmup.NOT_YET),
        (503, {}, Warmup.NOT_YET),
        (500, {}, Warmup.NOT_YET),
        (501, {"error": {"message": "no"}}, Refused("the warm-up request was refused (501): no")),
        (400, {"error": {"message": "no"}}, Refused("the warm-up request was refused (400): no")),
    ],
)
async def test_the_answer_decides(raw, kind, target, status, body, outcome):
    seen: list[str] = []
    answer = (status, GOOD[target] if body is None else body)
    answers = {target: answer, "/completion": (500, {})}

    assert await warm_up(spec(kind), await raw(answering(answers, seen))) == outcome
    assert seen[0] == target


@pytest.mark.parametrize("status", [400, 500])
async def test_a_chat_model_whose_template_fails_is_warm_after_a_completion(raw, status):
    seen: list[str] = []
    answers = {
        "/v1/chat/completions": (status, {"error": {"message": "jinja"}}),
        "/completion": (200, GOOD["/completion"]),
    }

    assert await warm_up(spec(), await raw(answering(answers, seen))) is Warmup.DONE
    assert seen == ["/v1/chat/completions", "/completion"]


async def test_no_answer_is_not_yet(tmp_path):
    assert await warm_up(spec(), str(tmp_path / "none.sock")) is Warmup.NOT_YET
