"""Who may do what: a unix socket is guarded by its file mode, a TCP port by the rules below."""

import hmac
import ipaddress
import os
import socket
import struct
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

from llamasup.admin.answers import Refusal

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

_PEER_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


class Door(Protocol):
    """One way in."""

    def refuse(self, request: web.Request) -> None:
        """Raise `Refusal` if *request* may not come in here."""

    def caller(self, request: web.Request) -> str:
        """Return who asks, for the log."""


class SocketDoor:
    """The unix socket: whoever may open it may do everything."""

    def refuse(self, request: web.Request) -> None:
        """Let everybody in."""

    def caller(self, request: web.Request) -> str:
        """Return the user and the process at the other end."""
        handle = request.get_extra_info("socket")
        if handle is None:
            return "unknown"
        # A duplicate, because uvloop's handle has no getsockopt.
        with socket.socket(fileno=os.dup(handle.fileno())) as peer:
            raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
        pid, uid, _gid = _PEER_CREDENTIALS.unpack(raw)
        return f"uid {uid} (pid {pid})"


@dataclass(frozen=True, slots=True)
class TcpDoor:
    """A TCP port. *loopback*: only this machine reaches it."""

    loopback: bool
    token: str | None = field(default=None, repr=False)

    def refuse(self, request: web.Request) -> None:
        """Apply the rules."""
        check(
            self,
            hosts=request.headers.getall("Host", []),
            authorization=request.headers.get("Authorization"),
            changing=request.method not in SAFE_METHODS,
        )

    def caller(self, request: web.Request) -> str:
        """Return the address at the other end."""
        return f"{request.remote} over TCP"


def check(door: TcpDoor, *, hosts: list[str], authorization: str | None, changing: bool) -> None:
    """Raise `Refusal` for what may not come in. The first rule that applies wins.

    Loopback under a foreign host name (DNS rebinding) → reading on loopback → no token configured
    → no token given → a wrong one.
    """
    if door.loopback and not all(map(is_literal, hosts)):
        message = "ask for this address by its IP address or as localhost"
        raise Refusal(403, "bad_host", message)
    if door.loopback and not changing:
        return
    if door.token is None:
        message = "no token is configured: use the unix socket, or set admin.token_file"
        raise Refusal(403, "no_token_configured", message)
    challenge = {"WWW-Authenticate": 'Bearer realm="llamasup"'}
    if authorization is None:
        message = "this needs the header 'Authorization: Bearer TOKEN' (llamasupctl --token-file)"
        raise Refusal(401, "token_needed", message, challenge)
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() != "bearer" or not _same(given.strip(), door.token):
        message = "this is not the token of admin.token_file"
        raise Refusal(401, "wrong_token", message, challenge)


def is_literal(host: str) -> bool:
    """Tell whether *host*, a Host header, needs no name service, so that nobody can rebind it."""
    name = host.strip()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches the literal address *host*."""
    return ipaddress.ip_address(host).is_loopback


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(
        given.encode("utf-8", "surrogateescape"), token.encode("utf-8", "surrogateescape")
    )
