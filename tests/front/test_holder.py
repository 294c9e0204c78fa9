"""Who listens on a port."""

import os
import socket

from llamasup.front.holder import holder_of


def test_a_listener_is_found():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        holder = holder_of(sock.getsockname()[1])

    assert holder is not None
    assert holder.endswith(f"(pid {os.getpid()})")


def test_nobody_listens_on_a_port_that_is_only_bound():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))

        assert holder_of(sock.getsockname()[1]) is None
