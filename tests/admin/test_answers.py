import aiohttp
import pytest

from tests.admin.conftest import error_of
from tests.fakes.control import FakeControl


async def test_a_query_that_means_nothing_is_refused(client: aiohttp.ClientSession):
    for path in (
        "/v1/status?x=1",
        "/v1/events?limit=many",
        "/v1/events?limit=1&limit=2",
        "/v1/events?after=yesterday",
        "/v1/instances/chat/logs?line=5",
        "/v1/instances/chat/logs?follow=maybe",
        "/v1/instances/chat/logs?lines=-1",
    ):
        async with client.get(path) as answer:
            assert await error_of(answer) == (400, "bad_query"), path


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'"now"',
        b"null",
        b'{"now": 1}',
        b'{"now": null}',
        b'{"later": true}',
        b"\xff\xfe",
        b"[" * 60000,
        b'{"\\u0000\\ud800": 1}',
    ],
)
async def test_a_bad_body_changes_nothing(
    client: aiohttp.ClientSession, control: FakeControl, body: bytes
):
    async with client.post("/v1/instances/chat/stop", data=body) as answer:
        assert await error_of(answer) == (400, "bad_body")
    assert control.commands == []


async def test_a_body_above_the_limit_is_refused(
    client: aiohttp.ClientSession, control: FakeControl
):
    body = b'{"now": true}' + b" " * 70_000

    async with client.post("/v1/instances/chat/stop", data=body) as answer:
        assert (await error_of(answer))[0] == 413
    async with client.post(
        "/v1/instances/chat/stop", data=b"x", headers={"Content-Encoding": "gzip"}
    ) as answer:
        assert await error_of(answer) == (415, "bad_body")
    assert control.commands == []
