"""Random callers: never a 500, never a hang, never a command that nobody may give."""

import select
import socket

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from llamasup.admin.app import ENDPOINTS
from llamasup.core.model import Verb
from tests.admin.conftest import TOKEN
from tests.fakes.live_admin import LiveAdmin

PATIENCE = 20

fuzzing = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

METHODS = st.sampled_from(
    ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "BREW", "get"]
)
NAMES = st.sampled_from(
    ["chat", "embed", "nobody", "op1", "..", ".", "%2e%2e%2f", "%00", "chat%0d%0aX:1", "a" * 300]
) | st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace").hex("%"))
PATHS = (
    st.tuples(st.sampled_from([one.path for one in ENDPOINTS]), NAMES).map(
        lambda pair: pair[0].replace("{name}", pair[1]).replace("{id}", pair[1])
    )
    | st.sampled_from(
        ["*", "//", "/v1//status", "/v1/instances/chat/stop/", "http://evil/v1/status"]
    )
    | st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40).map("/{}".format)
)
QUERIES = st.sampled_from(
    [
        "",
        "?",
        "?wait=0.01",
        "?wait=1e999",
        "?wait=nan",
        "?lines=10&lines=2",
        "?after=e1-0",
        "?limit=0",
        "?lines=%D9%A3",
        "?after=" + "9" * 40,
        "?follow=2",
        "?limit=-1",
        "?%00=%FF",
        "?now=1",
    ]
)
HEADERS = st.lists(
    st.sampled_from(
        [
            ("Host", "localhost"),
            ("Host", "evil.example"),
            ("Host", "[::1"),
            ("Authorization", f"Bearer {TOKEN}"),
            ("Authorization", "Bearer x"),
            ("Authorization", "Basic \xff\xfe"),
            ("Authorization", ""),
            ("Accept", "application/x-ndjson"),
            ("Content-Encoding", "gzip"),
            ("Content-Type", "multipart/form-data; boundary=x"),
            ("Transfer-Encoding", "chunked"),
            ("Expect", "100-continue"),
            ("Expect", "the-unexpected"),
            ("Upgrade", "websocket"),
            ("Connection", "upgrade"),
            ("Last-Event-ID", "e1-1"),
            ("Range", "bytes=0-1"),
            ("X", "y" * 9000),
        ]
    ),
    max_size=4,
)
BODIES = st.binary(max_size=200) | st.sampled_from(
    [b"", b"{}", b'{"now": true}', b'{"now": "yes"}', b"[" * 50_000, b"0\r\n\r\n", b"x" * 70_000]
)


def answer_of(address: object, request: bytes, moment: float = 0.05) -> bytes:
    """Send *request*, wait a *moment* for its answer, hang up, and return all that came."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as caller:
        caller.settimeout(PATIENCE)
        caller.connect(address)
        found = b""
        try:
            caller.sendall(request)
            # The server drops what it owes to one who hangs up; half a request is owed nothing.
            select.select([caller], [], [], moment)
            caller.shutdown(socket.SHUT_WR)
            while part := caller.recv(65536):
                found += part
        except TimeoutError:
            raise  # neither an answer nor an end
        except OSError:
            pass  # refused before it was read to the end
        return found


def is_well(live: LiveAdmin) -> bool:
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    return answer_of(live.conf.socket, request, PATIENCE).startswith(b"HTTP/1.1 200 ")


def statuses(reply: bytes) -> set[bytes]:
    return {part[:3] for part in reply.split(b"HTTP/1.1 ")[1:]}


@pytest.mark.parametrize("door", ["socket", "tcp"])
@fuzzing
@given(METHODS, PATHS, QUERIES, HEADERS, BODIES, st.booleans(), st.booleans())
@example("GET", "/v1/operations/%00", "", [], b"", False, True)
@example("POST", "/v1/instances/chat/stop", "", [("Host", "evil.example")], b"", True, False)
@example("POST", "/v1/instances/chat/stop", "", [("Authorization", "Bearer x")], b"", True, True)
def test_no_request_breaks_it(
    live: LiveAdmin,
    door: str,
    method: str,
    path: str,
    query: str,
    headers: list[tuple[str, str]],
    body: bytes,
    has_length: bool,
    has_host: bool,
):
    if has_host:
        headers = [("Host", "localhost"), *(one for one in headers if one[0] != "Host")]
    lines = [f"{method} {path}{query} HTTP/1.1", *(f"{key}: {value}" for key, value in headers)]
    if has_length:
        lines.append(f"Content-Length: {len(body)}")
    request = "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body
    tcp = live.server.tcp_address
    assert tcp is not None
    address = live.conf.socket if door == "socket" else (tcp.host, tcp.port)
    before = len(live.control.commands)

    reply = answer_of(address, request)

    assert b"500" not in statuses(reply)
    assert is_well(live)
    done = live.control.commands[before:]
    assert all(name in live.control.rows and verb in Verb for name, verb, _ in done)
    if door == "tcp" and f"Bearer {TOKEN}" not in [value for _, value in headers]:
        assert done == []


@fuzzing
@given(st.binary(max_size=600))
def test_no_bytes_break_it(live: LiveAdmin, noise: bytes):
    reply = answer_of(live.conf.socket, noise)

    assert b"500" not in statuses(reply)
    assert is_well(live)
    assert live.control.commands == []
