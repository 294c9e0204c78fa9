"""One request to a child, whatever the child answers."""

import asyncio
import os

import pytest

from llamasup.probe.http import MAX_ANSWER, Answer, ProbeError, ask, field

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def answering(*pieces: bytes):
    async def talk(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return talk


async def test_an_answer_has_status_body_and_the_pid_of_the_listener(raw):
    path = await raw(answering(OK))

    answer = await ask(path, "/health", timeout=20)

    assert answer == Answer(200, b"{}", os.getpid())


async def test_a_request_is_whole_and_asks_to_be_closed(raw):
    seen = []

    async def talk(reader, writer):
        seen.append(await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(8))
        writer.write(OK)

    await ask(await raw(talk), "/x", body={"a": 1}, key="secret", timeout=20)

    assert seen == [
        b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 8\r\nAuthorization: Bearer secret\r\nConnection: close\r\n\r\n"
        b'{"a": 1}'
    ]


@pytest.mark.parametrize(
    ("pieces", "why"),
    [
        ([], "closed before the end"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"], "closed before the end"),
        ([b"\x00\xff garbage \r\n\r\n"], "not HTTP"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n", b"x" * (2 << 20)], "longer than"),
        ([b"HTTP/1.1 200 OK\r\nX: " + b"x" * (2 << 20)], "longer than"),
    ],
)
async def test_what_is_no_answer_is_an_error(raw, pieces, why):
    path = await raw(answering(*pieces))

    with pytest.raises(ProbeError, match=why):
        await ask(path, "/health", timeout=20)


async def test_a_large_answer_below_the_limit_is_taken_whole(raw):
    size = MAX_ANSWER - 1000
    path = await raw(
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size, b"x" * size)
    )

    assert len((await ask(path, "/", timeout=20)).body) == size


async def test_silence_ends_with_the_timeout(raw):
    async def talk(reader, _writer):
        await reader.read()

    with pytest.raises(ProbeError, match="in time"):
        await ask(await raw(talk), "/health", timeout=0.05)


@pytest.mark.parametrize("exists", [True, False])
async def test_a_socket_that_nobody_listens_on_is_an_error(tmp_path, exists):
    path = tmp_path / "none.sock"
    if exists:
        server = await asyncio.start_unix_server(lambda _r, _w: None, path)
        server.close()
        await server.wait_closed()
        if not path.exists():
            path.touch()

    with pytest.raises(ProbeError, match="cannot ask /health"):
        await ask(str(path), "/health", timeout=20)


async def test_every_connection_is_closed(raw):
    closed = asyncio.Event()

    async def talk(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        assert await reader.read() == b""
        closed.set()

    await ask(await raw(talk), "/health", timeout=20)

    async with asyncio.timeout(20):
        await closed.wait()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"message":"Loading model"}}', "Loading model"),
        (b"plain text", "plain text"),
        (b"[" * 100_000, "[" * 300),
        (b"\xff", "\ufffd"),
    ],
)
def test_the_message_of_an_error_is_the_servers_or_the_body(body, message):
    assert Answer(500, body, 1).message() == message


def test_a_field_of_what_is_no_object_is_none():
    assert field([1], "a") is None
    assert field({"a": 2}, "a") == 2
