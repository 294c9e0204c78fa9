"""When a refusal is told, over real sockets."""

import pytest

from llamasup.core.routes import Refuse
from tests.front.conftest import World, eventually
from tests.front.test_relay import GET, error_of, post


@pytest.mark.parametrize("body", [b"hello", b"x" * 200_000])
async def test_a_refusal_waits_for_a_small_body_that_comes_apart(world: World, body: bytes):
    """Many clients take an end between head and body for a broken connection."""
    world.publish(Refuse("stopped"))
    head, _, _ = post(body).partition(b"\r\n\r\n")
    client = await world.client(head + b"\r\n\r\n")
    client.send(body[:3])
    await client.writer.drain()

    client.send(body[3:])

    answer = await client.until(b"}}")
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"Connection: close" not in answer
    client.send(GET)  # the connection is still good
    assert (await client.until(b"}}")).startswith(b"HTTP/1.1 503 ")


async def test_a_refusal_does_not_wait_for_a_large_body(world: World):
    world.publish(Refuse("stopped"))
    client = await world.client(
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\nabc"
    )

    assert (await client.until(b"}}")).startswith(b"HTTP/1.1 503 ")


async def test_a_client_that_leaves_before_its_refusal_is_forgotten(world: World):
    world.publish(Refuse("stopped"))
    client = await world.client(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc")
    await eventually(lambda: world.front.connections == 1)

    client.close()

    await eventually(lambda: world.front.connections == 0)
    assert world.gate.held("chat") == 0


async def test_no_100_continue_for_what_is_refused(world: World):
    world.publish(Refuse("broken"))
    client = await world.client(post(b"hello", b"Expect: 100-continue")[:-5])

    assert error_of(await client.rest())[0] == 503
