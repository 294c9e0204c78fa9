import contextlib
import os
import subprocess
import sys

import pytest

from llamasup.child import lock


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "chat.lock")


def test_a_lock_is_free_until_taken_and_after_the_last_descriptor(path):
    first, second = lock.open_lock(path), lock.open_lock(path)
    assert lock.is_free(second)

    assert lock.try_lock(first)
    copy = os.dup(first)
    os.close(first)
    assert not lock.is_free(second)
    os.close(copy)

    assert lock.is_free(second)
    os.close(second)


def test_a_link_is_not_opened(tmp_path, path):
    os.symlink(tmp_path / "elsewhere", path)

    with pytest.raises(OSError, match="symbolic links"):
        lock.open_lock(path)
    assert not (tmp_path / "elsewhere").exists()


def test_holders_are_those_who_hold_it_even_if_the_file_is_removed(path):
    ours, watch = lock.open_lock(path), lock.open_lock(path)
    lock.try_lock(ours)
    with subprocess.Popen(["sleep", "1000"], pass_fds=[ours]) as process:
        os.close(ours)

        assert lock.holders(watch) == [process.pid]
        os.unlink(path)
        assert lock.holders(watch) == [process.pid]
        assert lock.kill_holders(watch) == [process.pid]
    assert process.returncode == -9
    assert lock.holders(watch) == []
    os.close(watch)


def test_a_name_with_brackets_and_spaces_does_not_confuse_the_start_time(tmp_path):
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([str(odd), "1000"]) as process:
        with open(f"/proc/{process.pid}/stat") as file:
            expected = int(file.read().split()[-31])
        assert lock.start_time(process.pid) == expected
        process.kill()


def test_who_is_gone_has_no_start_time():
    assert lock.start_time(1 << 22) is None
    assert lock.command_name(1 << 22) == "?"


@contextlib.contextmanager
def started(*command: str):
    """Run *command* until the context ends; it has said that it is ready."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.kill()


def test_another_kind_of_lock_makes_no_holder(path):
    watch = lock.open_lock(path)
    script = """if True:
        import fcntl, sys, time
        file = open(sys.argv[1], "r+")
        fcntl.lockf(file, fcntl.LOCK_EX)
        print("ready", flush=True)
        time.sleep(1000)
    """
    with started(sys.executable, "-c", script, path):
        assert lock.holders(watch) == []
    os.close(watch)


def test_a_file_of_the_same_name_in_another_mount_namespace_is_another_file(tmp_path, path):
    watch = lock.open_lock(path)
    script = f"mount -t tmpfs none {tmp_path} && exec 9>{path} && flock 9 && echo ready && read _"
    with started("unshare", "-m", "--propagation", "private", "sh", "-c", script):
        assert lock.holders(watch) == []
    os.close(watch)
