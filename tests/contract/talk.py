"""Requests that every llama-server takes, and reading of raw connections."""

import socket

CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
LONG = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 30000}
SLOW = {"LLAMASUP_FAKE": "itl=0.01"}  # the real one is slow enough without


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    data = b""
    while mark not in data:
        piece = connection.recv(65536)
        assert piece, f"closed before {mark!r}: {data[-300:]!r}"
        data += piece
    return data


def read_all(connection: socket.socket) -> bytes:
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data
