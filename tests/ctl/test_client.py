import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from llamasup.core.model import Verb
from llamasup.ctl.main import run
from tests.ctl.conftest import TOKEN, Ended
from tests.fakes.live_admin import LiveAdmin

Ctl = Callable[..., Ended]


def test_over_tcp_changes_need_the_token(ctl: Ctl, daemon: LiveAdmin, tmp_path: Path):
    url = f"http://{daemon.server.tcp_address}"
    (tmp_path / "token").write_text(TOKEN + "\n")
    (tmp_path / "wrong").write_text("wrong")
    (tmp_path / "empty").write_text("\n")

    assert ctl("--url", url, "status").code == 0
    assert "Authorization: Bearer" in ctl("--url", url, "stop", "chat").err
    wrong = ctl("--url", url, "stop", "chat", "--token-file", str(tmp_path / "wrong"))
    assert (wrong.code, daemon.control.commands) == (1, [])
    assert ctl("stop", "chat", "--url", url, "--token-file", str(tmp_path / "token")).code == 0
    assert daemon.control.commands == [("chat", Verb.STOP, False)]
    assert "must hold one line" in ctl("status", "--token-file", str(tmp_path / "empty")).err
    assert "No such file" in ctl("status", "--token-file", str(tmp_path / "none")).err


def unreachable(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 6
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_no_daemon_ends_6_and_says_what_to_look_at(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    path = str(tmp_path / "admin.sock")

    message = unreachable(capsys, "--socket", path, "status")

    assert message == (
        f"llamasupctl: cannot reach the daemon at {path}: no such file or directory;"
        " is it running? see: systemctl status llamasup\n"
    )
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
    assert "connection refused" in unreachable(capsys, "--socket", path, "stop", "chat")


def test_a_socket_path_too_long_is_no_traceback(capsys: pytest.CaptureFixture[str]):
    assert "too long" in unreachable(capsys, "--socket", "/" + "x" * 200, "status")


def test_what_is_not_llamasup_is_told_apart(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    import threading

    def serve(listener: socket.socket) -> None:
        for reply in (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"SSH-2.0-x\r\n", b""):
            caller, _ = listener.accept()
            with caller:
                caller.recv(65536)
                caller.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        assert run(["--url", url, "status"]) == 1
        assert "is not llamasup" in capsys.readouterr().err
        assert "broke off" in unreachable(capsys, "--url", url, "status")
        unreachable(capsys, "--url", url, "status")
        thread.join(20)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user for a moment")
def test_a_forbidden_socket_says_whose_it_is(capsys: pytest.CaptureFixture[str]):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as door:
        os.chmod(folder, 0o755)
        path = f"{folder}/admin.sock"
        door.bind(path)
        door.listen()
        os.chmod(path, 0o660)
        groups, group = os.getgroups(), os.getegid()
        os.setgroups([])
        os.setegid(65534)
        os.seteuid(65534)
        try:
            message = unreachable(capsys, "--socket", path, "status")
        finally:
            os.seteuid(0)
            os.setegid(group)
            os.setgroups(groups)

    assert message == (
        f"llamasupctl: no permission to use {path}: use sudo, or add yourself to the group root\n"
    )
