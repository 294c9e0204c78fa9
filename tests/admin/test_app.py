import asyncio
import json
import os
import socket
import stat
import time
from pathlib import Path

import aiohttp
import pytest

from llamasup.admin.app import ENDPOINTS, AdminServer
from llamasup.config.spec import Address, AdminConf
from llamasup.core.model import Verb
from llamasup.core.operations import Outcome
from llamasup.errors import AlreadyRunningError, ListenError
from tests.admin.conftest import TOKEN
from tests.fakes.control import FakeControl

BEARER = {"Authorization": f"Bearer {TOKEN}"}

OPERATION = {
    "id": "op1",
    "instance": "chat",
    "verb": "restart",
    "outcome": "running",
    "message": "",
    "started": "2026-01-01T00:00:00.250+00:00",
    "ended": None,
}


async def error_of(answer: aiohttp.ClientResponse) -> tuple[int, str]:
    body = await answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message"}
    assert body["error"]["message"]
    return answer.status, body["error"]["code"]


# --- status --------------------------------------------------------------------------------------


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


async def test_anything_else_is_not_found_in_json(client: aiohttp.ClientSession):
    for path in ("/v1", "/v1/instances/", "/v2/status", "/v1/instances/chat/explode", "/../etc"):
        async with client.get(path) as answer:
            assert await error_of(answer) == (404, "not_found")


async def test_a_wrong_method_says_which_are_right(client: aiohttp.ClientSession):
    async with client.get("/v1/instances/chat/stop") as answer:
        assert await error_of(answer) == (405, "method_not_allowed")
        assert answer.headers["Allow"] == "POST"


async def test_the_page_needs_nothing_else_and_escapes_what_it_shows(
    client: aiohttp.ClientSession, control: FakeControl
):
    control.set_phase("chat", "backoff", "<script>alert(1)</script>")

    async with client.get("/") as answer:
        text = await answer.text()

    assert answer.content_type == "text/html"
    assert answer.headers["Refresh"] == "5"
    assert "&lt;script&gt;alert(1)" in text
    assert "<script" not in text
    assert "://" not in text
    assert "src=" not in text


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


# --- operations ----------------------------------------------------------------------------------


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


# --- TCP -----------------------------------------------------------------------------------------


async def test_over_tcp_reading_is_open_and_changing_needs_the_token(
    tcp: aiohttp.ClientSession, control: FakeControl
):
    async with tcp.get("/v1/status") as answer:
        assert answer.status == 200
    async with tcp.post("/v1/instances/chat/stop") as answer:
        assert await error_of(answer) == (401, "token_needed")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    async with tcp.post(
        "/v1/instances/chat/stop", headers={"Authorization": "Bearer guess"}
    ) as answer:
        assert await error_of(answer) == (401, "wrong_token")
    assert control.commands == []

    async with tcp.post("/v1/instances/chat/stop", headers=BEARER) as answer:
        assert answer.status == 202
    assert control.commands == [("chat", Verb.STOP, False)]


async def test_a_foreign_host_name_is_refused_on_loopback(
    tcp: aiohttp.ClientSession, control: FakeControl
):
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::1", ""):
        async with tcp.get("/v1/status", headers={"Host": host}) as answer:
            status = (await error_of(answer)) if host != "[::1" else (403, "bad_host")
            assert status == (403, "bad_host"), host
    for host in ("localhost:9110", "127.0.0.1", "[::1]:9110", "LOCALHOST"):
        async with tcp.get("/v1/status", headers={"Host": host}) as answer:
            assert answer.status == 200, host


async def test_the_socket_cares_for_no_host_name(client: aiohttp.ClientSession):
    async with client.get("/v1/status", headers={"Host": "llamasup.example"}) as answer:
        assert answer.status == 200


# --- listening -----------------------------------------------------------------------------------


async def test_the_socket_is_for_owner_and_group_alone(server: AdminServer, conf: AdminConf):
    before = os.umask(0o022)
    os.umask(before)

    assert stat.S_IMODE(os.stat(conf.socket).st_mode) == 0o660
    assert os.umask(before) == before


async def test_a_stale_socket_is_replaced(conf: AdminConf, control: FakeControl):
    left = socket.socket(socket.AF_UNIX)
    left.bind(conf.socket)
    left.close()

    server = AdminServer(control, conf)
    await server.start()
    await server.close()

    assert not os.path.exists(conf.socket)


async def test_a_socket_that_answers_is_left_alone(
    server: AdminServer, conf: AdminConf, client: aiohttp.ClientSession, control: FakeControl
):
    second = AdminServer(control, AdminConf(conf.socket))

    with pytest.raises(AlreadyRunningError, match="another daemon answers there"):
        await second.start()

    async with client.get("/healthz") as answer:
        assert answer.status == 200


async def test_a_file_that_is_no_socket_is_left_alone(conf: AdminConf, control: FakeControl):
    Path(conf.socket).write_text("mine")

    with pytest.raises(ListenError, match="something else than a socket"):
        await AdminServer(control, conf).start()

    assert Path(conf.socket).read_text() == "mine"


async def test_a_path_too_long_and_a_missing_folder_are_said(tmp_path: Path, control: FakeControl):
    with pytest.raises(ListenError, match="longer than 107 bytes"):
        await AdminServer(control, AdminConf("/tmp/" + "x" * 120)).start()
    with pytest.raises(ListenError, match="No such file or directory"):
        await AdminServer(control, AdminConf(str(tmp_path / "none" / "admin.sock"))).start()


async def test_a_busy_port_leaves_nothing_open(tmp_path: Path, control: FakeControl):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        path = str(tmp_path / "admin.sock")
        address = Address("127.0.0.1", taken.getsockname()[1])

        with pytest.raises(ListenError, match=f"cannot listen on {address}"):
            await AdminServer(control, AdminConf(path, address)).start()

    assert not os.path.exists(path)


async def test_close_leaves_a_successors_socket_alone(conf: AdminConf, control: FakeControl):
    server = AdminServer(control, conf)
    await server.start()
    os.rename(conf.socket, conf.socket + ".old")
    Path(conf.socket).write_text("successor")

    await server.close()

    assert Path(conf.socket).read_text() == "successor"


async def test_close_is_prompt_with_streams_polls_and_idle_connections(
    server: AdminServer, client: aiohttp.ClientSession, control: FakeControl
):
    control.outcome = None
    await client.post("/v1/instances/chat/restart")
    sse = await client.get("/v1/events", headers={"Accept": "text/event-stream"})
    logs = await client.get("/v1/instances/chat/logs?follow=1")
    async with asyncio.TaskGroup() as group:
        poll = group.create_task(client.get("/v1/operations/op1?wait=600"))
        async with client.get("/healthz"):
            pass

        begun = time.monotonic()
        await server.close()
        took = time.monotonic() - begun

        assert await sse.read() == b""
        assert await logs.read() == b""
        assert (await poll).status == 200
    assert took < 1.0


async def test_every_endpoint_has_its_row_once():
    rows = [(one.method, one.path) for one in ENDPOINTS]
    assert len(rows) == len(set(rows))


async def test_a_command_goes_on_when_the_caller_has_left(
    server: AdminServer, conf: AdminConf, control: FakeControl
):
    loop = asyncio.get_running_loop()
    for _ in range(20):
        caller = socket.socket(socket.AF_UNIX)
        caller.setblocking(False)
        await loop.sock_connect(caller, conf.socket)
        await loop.sock_sendall(caller, b"POST /v1/instances/chat/stop HTTP/1.1\r\nHost: x\r\n\r\n")
        caller.close()

    async with asyncio.timeout(20):
        while len(control.commands) < 20:
            await asyncio.sleep(0.001)


async def test_head_answers_without_a_body(client: aiohttp.ClientSession):
    for path in ("/healthz", "/v1/status", "/v1/events", "/v1/instances/chat/logs?follow=1"):
        async with client.head(path, headers={"Accept": "text/event-stream"}) as answer:
            assert (answer.status, await answer.read()) == (200, b"")


async def test_the_description_is_served(client: aiohttp.ClientSession):
    async with client.get("/openapi.json") as answer:
        assert json.loads(await answer.text())["openapi"] == "3.1.0"
