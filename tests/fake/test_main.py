"""The faults of a whole life: phases, ends, noise, descendants."""

import http.client
import os
import signal
import socket
import time

import psutil
import pytest

from tests.contract.talk import CHAT, LONG, read_all, read_until

GONE = (OSError, http.client.HTTPException)


def ask_until_it_ends(server) -> int:
    """Go through the phases as a client does; return the exit code."""
    while server.process.poll() is None:
        try:
            server.ask("/v1/chat/completions", CHAT)
        except GONE:
            time.sleep(0.002)
    return server.end()


@pytest.mark.parametrize("phase", ["start", "loading", "warmup", "ready", "request"])
@pytest.mark.parametrize(
    ("fault", "code"),
    [("exit_at={}:0", 0), ("exit_at={}:3", 3), ("signal_at={}:SEGV", -11)],
)
def test_it_ends_in_the_phase_asked_for(fake, phase, fault, code):
    assert ask_until_it_ends(fake(fault.format(phase))) == code


@pytest.mark.parametrize(
    ("faults", "answers"),
    [("exit_at=warmup:3", 0), ("exit_at=ready:3", 1), ("exit_at=request:3", 1)],
)
def test_the_phases_differ_in_the_answers_before_the_end(fake, faults, answers):
    server = fake(faults)
    server.wait_until(200)
    got = 0
    while server.process.poll() is None:
        try:
            got += server.ask("/v1/chat/completions", CHAT).status == 200
        except GONE:
            break
        if "ready" in faults:
            break
    server.end()

    assert got == answers


def test_a_word_may_hold_for_the_first_starts_only(fake, tmp_path):
    counter = {"LLAMASUP_FAKE_COUNTER": str(tmp_path / "starts")}

    assert fake("refuse_start=2", **counter).end() == 1
    assert fake("refuse_start=2", **counter).end() == 1
    third = fake("refuse_start=2", **counter)
    third.wait_until(200)

    assert third.control.ask()["start"] == 3


def test_gates_hold_each_phase_until_they_are_opened(fake):
    server = fake("bind_late=gate load=gate")

    server.control.wait(waiting={"bind_late": 1})
    assert not os.path.exists(server.socket_path)
    server.control.ask(open="bind_late")
    server.control.wait(phase="loading", waiting={"load": 1})
    assert server.ask("/health").status == 503
    server.control.ask(open="load")
    server.control.wait(phase="loaded")
    assert server.ask("/health").status == 200


def test_tokens_come_one_by_one_through_a_gate(fake):
    server = fake("itl=gate")
    server.wait_until(200)

    with server.open("/v1/chat/completions", CHAT | {"stream": True}) as connection:
        assert b'"w0 "' in read_until(connection, b'"w0 "')
        server.control.wait(waiting={"itl": 1})
        server.control.ask(step={"itl": 1})
        read_until(connection, b'"w1 "')
        server.control.ask(open="itl")
        assert b"[DONE]" in read_all(connection)


def test_faults_are_set_and_cleared_while_it_runs(fake):
    server = fake()
    server.wait_until(200)

    server.control.ask(set={"fail": 500})
    assert server.ask("/v1/chat/completions", CHAT).status == 500
    server.control.ask(clear=["fail"])
    assert server.ask("/v1/chat/completions", CHAT).status == 200


@pytest.mark.parametrize(("command", "code"), [({"exit": 4}, 4), ({"signal": "ABRT"}, -6)])
def test_it_ends_when_told(fake, command, code):
    server = fake()

    server.control.end(**command)

    assert server.end() == code


def test_sigterm_can_be_ignored(fake):
    server = fake("ignore_term")
    server.control.wait(phase="loaded")

    server.signal(signal.SIGTERM)
    server.signal(signal.SIGTERM)

    assert server.ask("/health").status == 200


def test_an_end_can_wait_at_a_gate(fake):
    server = fake("stop=gate")
    server.control.wait(phase="loaded")

    server.signal(signal.SIGTERM)
    server.control.wait(phase="ending", waiting={"stop": 1})
    server.control.ask(open="stop")

    assert server.end() == 0


def test_a_grandchild_in_its_own_session_outlives_it(fake):
    server = fake("fork_setsid")
    server.control.wait(phase="loaded")
    (grandchild,) = psutil.Process(server.process.pid).children()

    server.signal(signal.SIGTERM)

    try:
        assert server.end() == 0
        assert grandchild.is_running()
        assert os.getsid(grandchild.pid) != os.getsid(0)
    finally:
        grandchild.kill()


def test_a_long_line_and_a_flood_go_to_stderr(fake):
    server = fake("longline=200000 flood=50000")

    server.wait_for(lambda: "flood: line 1000\n" in server.log, "a flood")

    assert "\n" + "x" * 200_000 + "\n" in server.log


def test_it_ends_with_its_stdin_if_asked_to(fake):
    server = fake("stdin_eof")
    server.control.wait(phase="loaded")

    server.process.stdin.close()

    assert server.end() == 1


@pytest.mark.parametrize(("faults", "code"), [("exit_after=0.01:0", 0), ("exit_after=0:9", 9)])
def test_it_ends_by_itself_after_a_time(fake, faults, code):
    assert fake(faults).end() == code


def test_a_tcp_port_works_too(fake):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = fake("", "--host", "127.0.0.1", "--port", str(port))
    server.control.wait(phase="loaded")

    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b'{"status":"ok"}' in read_until(connection, b'"ok"}')


def test_a_client_that_leaves_frees_its_slot_unless_it_is_deaf(fake):
    server = fake("itl=gate", "--parallel", "1")
    server.wait_until(200)

    with server.open("/v1/chat/completions", LONG):
        server.control.wait(in_flight=1)
    server.control.wait(in_flight=0)
    server.control.ask(set={"cancel_deaf": 1})
    with server.open("/v1/chat/completions", CHAT | {"stream": True}) as connection:
        read_until(connection, b'"w0 "')
    server.control.wait(left=1, in_flight=1)
    server.control.ask(open="itl")
    server.control.wait(in_flight=0)
