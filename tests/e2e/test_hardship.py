"""What once ended the daemon, or kept it from ending: no files, many commands, no reader."""

import json
import os
import signal
import socket
import subprocess
import time

import pytest

from tests.e2e.harness import UnixConnection, running, wait_for
from tests.e2e.test_ends import daemon_with, fake

pytestmark = pytest.mark.e2e


def connect_all(port: int, number: int) -> list[socket.socket]:
    """Open idle connections, as many as the daemon takes."""
    found = []
    for _ in range(number):
        one = socket.socket()
        one.settimeout(1)
        try:
            one.connect(("127.0.0.1", port))
        except OSError:
            one.close()
            break
        found.append(one)
    return found


@pytest.mark.parametrize("door", ["front", "admin"])
def test_idle_connections_take_no_file_that_supervising_needs(door: str) -> None:
    daemon = daemon_with(a=fake(), b=fake())
    with running(daemon, prefix=("prlimit", "--nofile=128:128")):
        daemon.wait_ready()
        victim = daemon.row("b")["pid"]
        idle = connect_all(daemon.admin_port if door == "admin" else daemon.ports["a"], 400)
        try:
            os.kill(victim, signal.SIGKILL)
            time.sleep(11)  # one tick of the control loop, which looks through /proc
            assert daemon.process is not None
            assert daemon.process.poll() is None, daemon.log_text()[-2000:]
        finally:
            for one in idle:
                one.close()
        daemon.wait_ready()
        assert daemon.chat("b")[0] == 200


def test_hundreds_of_commands_at_once_are_all_answered() -> None:
    daemon = daemon_with(a=fake())
    with running(daemon):
        daemon.wait_ready()
        connection = UnixConnection(daemon.admin_socket)
        os.kill(daemon.pid, signal.SIGSTOP)  # so that they come in one turn
        crowd = []
        for _ in range(60):
            one = socket.socket(socket.AF_UNIX)
            one.connect(daemon.admin_socket)
            one.sendall(
                b"POST /v1/instances/a/restart HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
                * 10
            )
            crowd.append(one)
        os.kill(daemon.pid, signal.SIGCONT)
        connection.close()

        wait_for(
            lambda: (
                "op600" in json.dumps(daemon.admin("POST", "/v1/instances/a/restart", {}))
                or int(daemon.admin("POST", "/v1/instances/a/start", {})["id"][2:]) > 600
            ),
            "all came",
        )
        for one in crowd:
            one.close()

        daemon.wait_ready()
        assert daemon.chat("a")[0] == 200


def test_a_daemon_whose_stderr_nobody_reads_ends() -> None:
    daemon = daemon_with(a=fake("flood=2000"))
    reader, writer = os.pipe()
    try:
        daemon.process = subprocess.Popen(
            daemon.command(), stdout=writer, stderr=writer, start_new_session=True
        )
        os.close(writer)
        wait_for(daemon.answers, "the admin API answers")
        daemon.wait_ready()

        daemon.process.send_signal(signal.SIGTERM)

        daemon.process.wait(60)
    finally:
        daemon.clean_up()
        os.close(reader)


def test_a_daemon_without_stderr_works() -> None:
    daemon = daemon_with(a=fake())
    command = ["sh", "-c", 'exec "$@" 2>&- <&- >&-', "sh", *daemon.command()]
    daemon.process = subprocess.Popen(command, start_new_session=True)
    try:
        wait_for(daemon.answers, "the admin API answers")
        daemon.wait_ready()
        assert daemon.chat("a")[0] == 200

        assert daemon.stop() == 0
    finally:
        daemon.clean_up()


def test_a_second_sigterm_at_the_end_changes_nothing() -> None:
    daemon = daemon_with(a=fake())
    with running(daemon):
        daemon.wait_ready()
        assert daemon.process is not None

        for _ in range(2):
            daemon.process.send_signal(signal.SIGTERM)

        assert daemon.process.wait(60) == 0


def test_a_hang_up_does_not_end_it() -> None:
    daemon = daemon_with(a=fake())
    with running(daemon):
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGHUP)

        daemon.wait_ready()
        assert daemon.chat("a")[0] == 200
