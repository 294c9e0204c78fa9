"""Server-sent events and followed logs, as a reader sees them."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from llamasup.admin.answers import Refusal
from llamasup.admin.app import AdminServer
from llamasup.admin.streams import Streams
from llamasup.config.spec import AdminConf
from tests.fakes.control import FakeControl

SSE = {"Accept": "text/event-stream"}
PATIENCE = 20


async def blocks(answer: aiohttp.ClientResponse, count: int) -> list[dict[str, str]]:
    """Return the next *count* server-sent events as their fields."""
    found: list[dict[str, str]] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < count:
            fields = {}
            while line := (await answer.content.readline()).decode().rstrip("\n"):
                key, _, value = line.partition(": ")
                fields[key] = value
            found.append(fields)
    return found


async def ids(answer: aiohttp.ClientResponse, count: int) -> list[str]:
    return [block["id"] for block in await blocks(answer, count)]


@asynccontextmanager
async def following(
    client: aiohttp.ClientSession, query: str = "", **headers: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    async with client.get(f"/v1/events{query}", headers=SSE | headers) as answer:
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"
        yield answer


def fill(control: FakeControl, count: int) -> None:
    for number in range(count):
        control.events.append(float(number), "chat", "phase", f"m{number}\nnext")


# --- events --------------------------------------------------------------------------------------


async def test_the_list_is_the_newest_or_what_came_after(
    client: aiohttp.ClientSession, control: FakeControl
):
    fill(control, 10)

    async def listed(query: str) -> tuple[list[int], str]:
        async with client.get(f"/v1/events{query}") as answer:
            body = await answer.json()
            return [event["seq"] for event in body["events"]], body["last"]

    assert await listed("?limit=3") == ([8, 9, 10], "e1-10")
    assert await listed("?after=e1-4&limit=3") == ([5, 6, 7], "e1-7")
    assert await listed("?after=10") == ([], "e1-10")
    assert await listed("?limit=0") == ([], "e1-10")
    fill(control, 45)
    assert await listed("?after=1&limit=2") == ([5, 6], "e1-6")


async def test_a_reader_sees_what_is_new_one_block_an_event(
    client: aiohttp.ClientSession, control: FakeControl
):
    fill(control, 3)
    async with following(client) as answer:
        control.events.append(1.0, "chat", "exit", "killed\nby\r\nSIGSEGV", "error")

        (block,) = await blocks(answer, 1)

    assert set(block) == {"id", "data"}
    assert block["id"] == "e1-4"
    assert json.loads(block["data"])["message"] == "killed\nby\r\nSIGSEGV"


async def test_a_reader_goes_on_where_it_stopped(
    client: aiohttp.ClientSession, control: FakeControl
):
    fill(control, 5)

    async with following(client, "?after=0") as answer:
        assert await ids(answer, 3) == ["e1-1", "e1-2", "e1-3"]
    async with following(client, "?after=0", **{"Last-Event-ID": "e1-3"}) as answer:
        assert await ids(answer, 2) == ["e1-4", "e1-5"]


async def test_a_reader_of_another_daemon_starts_at_the_beginning_with_a_gap(
    client: aiohttp.ClientSession, control: FakeControl
):
    fill(control, 2)

    for cursor in ("old-2", "e1-99", "gibberish"):
        async with following(client, **{"Last-Event-ID": cursor}) as answer:
            first, second, _ = await blocks(answer, 3)
        assert (first["event"], first["id"], second["id"]) == ("gap", "e1-0", "e1-1")


async def test_events_that_fell_out_are_an_explicit_gap(
    client: aiohttp.ClientSession, control: FakeControl
):
    fill(control, 60)

    async with following(client, "?after=3") as answer:
        gap, first = await blocks(answer, 2)

    assert (gap["event"], gap["id"]) == ("gap", "e1-10")
    assert json.loads(gap["data"])["kind"] == "gap"
    assert first["id"] == "e1-11"


# --- logs ----------------------------------------------------------------------------------------


async def test_followed_logs_go_on_without_a_hole_or_a_double(
    client: aiohttp.ClientSession, control: FakeControl
):
    book = control.books["chat"]
    for number in range(5):
        book.write(f"old {number}")

    async with client.get("/v1/instances/chat/logs?lines=2&follow=1") as answer:
        assert answer.content_type == "text/plain"
        assert await answer.content.readline() == b"old 3\n"
        assert await answer.content.readline() == b"old 4\n"
        book.write("new")
        assert await answer.content.readline() == b"new\n"


async def test_following_from_no_line_shows_the_new_ones_alone(
    client: aiohttp.ClientSession, control: FakeControl
):
    book = control.books["chat"]
    book.write("old")

    async with client.get(
        "/v1/instances/chat/logs?lines=0&follow=1", headers={"Accept": "application/x-ndjson"}
    ) as answer:
        book.write("new \ud800")
        line = json.loads(await answer.content.readline())

    assert (line["seq"], line["text"]) == (2, "new \ud800")


# --- readers that leave or stall -----------------------------------------------------------------


@pytest.fixture
async def impatient(control: FakeControl, conf: AdminConf) -> AsyncIterator[AdminServer]:
    """Signs of life every 10 ms; who takes nothing for 200 ms is dropped."""
    server = AdminServer(control, AdminConf(conf.socket), beat=0.01, send_timeout=0.2, pause=0)
    await server.start()
    yield server
    await server.close()


def session(conf: AdminConf) -> aiohttp.ClientSession:
    return aiohttp.ClientSession("http://x", connector=aiohttp.UnixConnector(conf.socket))


async def test_a_quiet_stream_shows_signs_of_life(impatient: AdminServer, conf: AdminConf):
    async with session(conf) as client, following(client) as answer, asyncio.timeout(PATIENCE):
        assert await answer.content.readline() == b": alive\n"


async def test_a_reader_that_stalls_is_dropped_and_slows_nobody(
    impatient: AdminServer, conf: AdminConf, control: FakeControl
):
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as stalled:
        stalled.setblocking(False)
        await loop.sock_connect(stalled, conf.socket)
        await loop.sock_sendall(
            stalled,
            b"GET /v1/events?after=0 HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n",
        )
        assert await loop.sock_recv(stalled, 10) == b"HTTP/1.1 2"

        seen = 0
        async with session(conf) as client, following(client) as quick, asyncio.timeout(PATIENCE):
            while impatient.open_streams == 2:
                control.events.append(0.0, "", "x", "y" * 4000)
                seen += 1
                while not (await quick.content.readline()).startswith(b"id: "):
                    pass

        assert seen > 10


async def test_a_reader_that_left_is_noticed_without_any_news(
    impatient: AdminServer, conf: AdminConf
):
    async with session(conf) as client:
        answers = [
            await client.get("/v1/events", headers=SSE),
            await client.get("/v1/instances/chat/logs?follow=1"),
        ]
        assert impatient.open_streams == 2
        for answer in answers:
            answer.close()

    async with asyncio.timeout(PATIENCE):
        while impatient.open_streams:
            await asyncio.sleep(0.005)


async def test_a_flood_is_sent_in_few_pieces(
    impatient: AdminServer, conf: AdminConf, control: FakeControl
):
    """One turn of the event loop per line would leave little for anybody else."""
    fill(control, 1)
    async with session(conf) as client, following(client, "?after=0") as answer:
        assert await ids(answer, 1) == ["e1-1"]
        fill(control, 40)
        piece = await answer.content.readany()

    assert piece.count(b"data: ") == 40


# --- the scopes ----------------------------------------------------------------------------------


async def test_scopes_are_bounded_in_number():
    streams = Streams(most=1)

    async with streams.scope(None):
        with pytest.raises(Refusal, match="too many streams"):
            async with streams.scope(None):
                pass
    async with streams.scope(None):
        pass


async def test_close_ends_every_scope_and_lets_none_in():
    streams = Streams()
    async with asyncio.timeout(PATIENCE):
        async with streams.scope(None):
            streams.close()
            await asyncio.Event().wait()
        with pytest.raises(Refusal):
            async with streams.scope(None):
                pass


async def test_a_timeout_of_somebody_else_is_not_swallowed():
    with pytest.raises(TimeoutError):
        async with Streams().scope(None):
            raise TimeoutError
