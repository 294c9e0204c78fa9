import asyncio

import aiohttp
import pytest

from llamasup.core.model import Verb
from llamasup.core.operations import Outcome
from tests.admin.conftest import error_of
from tests.fakes.control import FakeControl

OPERATION = {
    "id": "op1",
    "instance": "chat",
    "verb": "restart",
    "outcome": "running",
    "message": "",
    "started": "2026-01-01T00:00:00.250+00:00",
    "ended": None,
}


async def test_status_is_the_daemon_and_its_instances(client: aiohttp.ClientSession):
    async with client.get("/v1/status") as answer:
        body = await answer.json()

    assert answer.status == 200
    assert answer.headers["Cache-Control"] == "no-store"
    assert body["daemon"]["summary"] == "2/2 ready"
    assert [row["name"] for row in body["instances"]] == ["chat", "embed"]


async def test_one_instance_is_its_row(client: aiohttp.ClientSession):
    async with client.get("/v1/instances") as answer:
        rows = (await answer.json())["instances"]
    async with client.get("/v1/instances/embed") as answer:
        assert await answer.json() == rows[1]


@pytest.mark.parametrize(
    "name", ["nobody", "..%2Fchat", "chat%00", "%F0%9F%A6%99", "c" * 5000, "chat%0a", "%2e%2e"]
)
async def test_a_name_that_is_none_is_not_found(
    client: aiohttp.ClientSession, control: FakeControl, name: str
):
    from yarl import URL

    for method, path in [("GET", ""), ("GET", "/logs"), ("POST", "/stop")]:
        url = URL(f"/v1/instances/{name}{path}", encoded=True)
        async with client.request(method, url) as answer:
            assert await error_of(answer) in [(404, "no_such_instance"), (404, "not_found")]
    assert control.commands == []


async def test_health_is_the_control_loops(client: aiohttp.ClientSession, control: FakeControl):
    async with client.get("/healthz") as answer:
        assert (answer.status, await answer.json()) == (200, {"healthy": True})

    control.is_healthy = False

    async with client.get("/healthz") as answer:
        assert (answer.status, await answer.json()) == (503, {"healthy": False})


async def test_readiness_names_what_is_missing(client: aiohttp.ClientSession, control: FakeControl):
    control.set_phase("embed", "stopped")
    async with client.get("/readyz") as answer:
        assert answer.status == 200

    control.set_phase("chat", "loading", "12 GiB read")

    async with client.get("/readyz") as answer:
        assert answer.status == 503
        assert await answer.json() == {
            "ready": False,
            "shutting_down": False,
            "not_ready": [{"name": "chat", "phase": "loading", "reason": "12 GiB read"}],
        }


async def test_a_command_answers_at_once_with_its_operation(
    client: aiohttp.ClientSession, control: FakeControl
):
    control.outcome = None

    async with client.post("/v1/instances/chat/restart", json={"now": True}) as answer:
        assert answer.status == 202
        assert answer.headers["Location"] == "/v1/operations/op1"
        assert await answer.json() == OPERATION

    assert control.commands == [("chat", Verb.RESTART, True)]


async def test_every_verb_reaches_the_control(client: aiohttp.ClientSession, control: FakeControl):
    for verb in Verb:
        async with client.post(f"/v1/instances/embed/{verb}") as answer:
            assert answer.status == 202

    assert control.commands == [("embed", verb, False) for verb in Verb]


async def test_a_long_poll_ends_with_the_operation(
    client: aiohttp.ClientSession, control: FakeControl
):
    control.outcome = None
    await client.post("/v1/instances/chat/restart")

    async with asyncio.TaskGroup() as group:
        poll = group.create_task(client.get("/v1/operations/op1?wait=600"))
        async with client.get("/v1/operations/op1") as answer:
            assert await answer.json() == OPERATION
        assert not poll.done()
        control.end("op1", Outcome.FAILED, "backoff: killed by SIGSEGV")

    ended = await poll.result().json()
    assert (ended["outcome"], ended["message"]) == ("failed", "backoff: killed by SIGSEGV")
    assert ended["ended"] == "2026-01-01T00:00:05.250+00:00"


async def test_a_long_poll_that_runs_out_shows_how_far_it_is(
    client: aiohttp.ClientSession, control: FakeControl
):
    control.outcome = None
    await client.post("/v1/instances/chat/restart")

    async with client.get("/v1/operations/op1?wait=0.01") as answer:
        assert await answer.json() == OPERATION


async def test_an_unknown_operation_is_not_found(client: aiohttp.ClientSession):
    for name in ("op9", "%00", "..%2f"):
        async with client.get(f"/v1/operations/{name}") as answer:
            assert answer.status == 404
