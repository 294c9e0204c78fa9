"""Connecting to a child."""

import asyncio
import socket

from llamasup.core.routes import Hold, Serve
from tests.front.conftest import World, eventually
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
