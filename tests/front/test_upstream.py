"""Connecting to a child."""

import asyncio
import socket

from llamasup.core.routes import Hold, Serve
from tests.front.conftest import Child, Peer, World, eventually
from tests.front.test_relay import OK, SEEN_OK, post


async def test_a_full_backlog_is_waited_out_in_order(world: World):
    """llama-server listens with a backlog of five: a burst must not fail."""
    loop = asyncio.get_running_loop()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{world.runtime_dir}/chat.1.sock")
    listener.listen(1)
    listener.setblocking(False)
    world.publish(Hold("loading"), max_held=100)
    clients = []
    for n in range(30):
        clients.append(await world.client(post(b"%02d" % n)))
        await eventually(lambda n=n: world.gate.held("chat") == n + 1)

    world.publish(Serve(1))

    order = []
    async with asyncio.timeout(20):
        for _ in clients:
            sock, _ = await loop.sock_accept(listener)
            with sock:
                sock.setblocking(False)
                raw = await loop.sock_recv(sock, 4096)
                order.append(int(raw[-2:]))
                await loop.sock_sendall(sock, OK)
    listener.close()
    assert order == sorted(order)
    for client in clients:
        assert await client.exactly(len(SEEN_OK)) == SEEN_OK


async def ask_twice(child: Child, client: Peer) -> None:
    """Let a second request follow the first closely, so that a third one is expected."""
    for _ in range(2):
        client.send(post(b"x"))
        peer = await child.accept()
        await peer.head()
        peer.send(OK)
        assert await client.exactly(len(SEEN_OK)) == SEEN_OK


async def test_the_next_connection_is_made_ahead_while_requests_are_brisk(world: World):
    """Each request still has a connection of its own; a spare one waits with nothing sent on it."""
    child = await world.child()
    world.publish(Serve(1))
    client = await world.client()

    await ask_twice(child, client)
    spare = await child.accept()

    client.send(post(b"x"))

    assert (await spare.head()).startswith(b"POST ")
    spare.send(OK)
    assert await client.exactly(len(SEEN_OK)) == SEEN_OK


async def test_a_connection_made_ahead_is_not_kept_for_long(world: World):
    child = await world.child()
    world.publish(Serve(1))
    client = await world.client()
    await ask_twice(child, client)

    spare = await child.accept()

    assert await spare.rest() == b""  # it was closed, and nothing was sent on it


async def test_a_connection_made_ahead_to_a_child_that_died_loses_no_request(world: World):
    child = await world.child()
    world.publish(Serve(1))
    client = await world.client()
    await ask_twice(child, client)
    (await child.accept()).close()
    child.close()

    client.send(post(b"x"))
    await eventually(lambda: world.gate.counters("chat").replays == 1)
    successor = await world.child(gen=2)
    world.publish(Serve(2))

    peer = await successor.accept()
    await peer.head()
    peer.send(OK)
    assert await client.exactly(len(SEEN_OK)) == SEEN_OK
