"""Launching with real processes, on both event loops."""

import asyncio
import os
import resource
import signal
import socket
import time

import pytest

from llamasup.child import lock
from llamasup.child.process import Launcher
from llamasup.child.spawn import RawExit
from llamasup.errors import SpawnError
from llamasup.paths import lock_path, socket_path
from tests.child.conftest import (
    PATIENCE,
    alive,
    eventually,
    lag_of_the_loop,
    open_fds,
    py,
    sh,
    spec,
)


@pytest.fixture(autouse=True)
async def _in_time():
    async with asyncio.timeout(2 * PATIENCE):
        yield


async def run(launch, what):
    child = launch(what)
    await child.executed()
    return child, await child.wait()


async def printed(child, text: str) -> None:
    await eventually(lambda: text in [line.text for line in child.output.tail(100)])


@pytest.mark.parametrize(
    ("script", "end"),
    [
        ("exit 0", RawExit(0, None)),
        ("exit 1", RawExit(1, None)),
        ("exit 127", RawExit(127, None)),  # not to be taken for a failed exec
        ("kill -SEGV $$", RawExit(None, signal.SIGSEGV)),
        ("kill -KILL $$", RawExit(None, signal.SIGKILL)),
    ],
)
async def test_the_end_is_told_as_it_was(launch, script, end):
    _, raw = await run(launch, sh(script))

    assert raw == end


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (None, 0, "no such file"),
        (b"#!/bin/sh\n", 0o600, "permission denied"),
        (b"\x7fnothing", 0o700, "not a program for this machine"),
        (b"#!/no/such/shell\n", 0o700, "its interpreter is missing"),
    ],
)
async def test_a_failed_exec_says_why(launch, tmp_path, content, mode, reason):
    binary = tmp_path / "server"
    if content is not None:
        binary.write_bytes(content)
        binary.chmod(mode)

    child = launch(spec((str(binary),)))

    with pytest.raises(SpawnError, match=f"^cannot start {binary}: {reason}$"):
        await child.executed()
    assert await child.wait() == RawExit(None, None)


async def test_a_spawn_that_is_impossible_leaves_nothing_behind(launcher, tmp_path):
    before = open_fds()

    with pytest.raises(SpawnError, match="zero byte"):
        launcher.launch("chat", 1, sh("a\0b"))

    assert open_fds() == before
    assert not lock.holders(os.open(lock_path(str(tmp_path), "chat"), os.O_RDONLY))


async def test_the_child_gets_what_it_should(launch, tmp_path):
    script = """if True:
        import os, sys
        print(sys.argv[1:], os.getcwd(), os.getsid(0) == os.getpid())
        print(os.getpriority(os.PRIO_PROCESS, 0), open("/proc/self/oom_score_adj").read().strip())
        print(oct(os.umask(0)), sorted(os.listdir("/proc/self/fd")), os.readlink("/proc/self/fd/0"))
        print(*(os.environ[name] for name in ("LLAMASUP_INSTANCE", "LLAMASUP_GENERATION", "X")))
    """
    what = py(script, nice=3, oom_score_adj=321, env=(("X", "y"),))

    child, raw = await run(launch, what)

    assert raw == RawExit(0, None)
    assert [line.text for line in child.output.tail(10)] == [
        f"['--host', '{socket_path(str(tmp_path), 'chat', 1)}'] / True",
        "3 321",
        "0o77 ['0', '1', '2', '3', '5'] /dev/null",  # 3 is the folder being listed, 5 the lock
        "chat 1 y",
    ]


async def test_a_grandchild_in_a_session_of_its_own_is_killed(launch):
    child = launch(sh("setsid sh -c 'echo $$; exec sleep 1000' & sleep 0.2; wait"))
    await eventually(lambda: child.output.tail(1))
    grandchild = int(child.output.tail(1)[0].text)
    assert os.getsid(grandchild) != child.pid

    child.terminate()
    raw = await child.wait()

    assert raw == RawExit(None, signal.SIGTERM)
    await eventually(lambda: not alive(grandchild))  # its lock goes a moment before it does


async def test_the_kill_reaches_a_grandchild_while_the_main_process_is_stopped(launch):
    child = launch(sh("setsid sh -c 'echo $$; exec sleep 1000' & sleep 1000"))
    await eventually(lambda: child.output.tail(1))
    grandchild = int(child.output.tail(1)[0].text)
    os.kill(child.pid, signal.SIGSTOP)

    child.kill()

    assert await child.wait() == RawExit(None, signal.SIGKILL)
    await eventually(lambda: not alive(grandchild))  # its lock goes a moment before it does


async def test_who_ignores_sigterm_ends_by_sigkill(launch):
    child = launch(sh("trap '' TERM; echo up; while :; do sleep 1; done"))
    await printed(child, "up")

    child.terminate()
    child.terminate()
    assert alive(child.pid)
    child.kill()

    assert await child.wait() == RawExit(None, signal.SIGKILL)


async def test_a_stopped_child_gets_its_sigterm(launch):
    child = launch(sh("echo up; exec sleep 1000"))
    await printed(child, "up")
    os.kill(child.pid, signal.SIGSTOP)

    child.terminate()

    assert await child.wait() == RawExit(None, signal.SIGTERM)


async def test_a_signal_before_the_exec_is_not_lost(launch):
    child = launch(sh("sleep 1000"))

    child.terminate()

    await child.wait()
    assert not alive(child.pid)


async def test_a_second_generation_waits_for_every_process_of_the_first(launch, launcher):
    child = launch(sh("echo up; exec sleep 1000"))
    await printed(child, "up")

    with pytest.raises(SpawnError, match=rf"cannot start chat: pid {child.pid} "):
        launcher.launch("chat", 2, sh("exit 0"))
    other = launch(sh("exit 0"), name="other")
    assert await other.wait() == RawExit(0, None)
    child.kill()
    await child.wait()

    assert await launch(sh("exit 5")).wait() == RawExit(5, None)


async def test_a_removed_lock_file_does_not_fool_the_wait(launch, tmp_path):
    child = launch(sh("setsid sh -c 'echo $$; exec sleep 1000' & sleep 0.2; wait"))
    await eventually(lambda: child.output.tail(1))
    grandchild = int(child.output.tail(1)[0].text)
    os.unlink(lock_path(str(tmp_path), "chat"))

    child.terminate()
    await child.wait()

    await eventually(lambda: not alive(grandchild))  # its lock goes a moment before it does


async def test_stale_and_used_sockets_are_removed(launch, tmp_path):
    path = socket_path(str(tmp_path), "chat", 1)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
    child = launch(py("import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[2])"))

    assert await child.wait() == RawExit(0, None)
    assert not os.path.exists(path)


async def test_a_wait_may_be_cancelled_and_repeated(launch):
    child = launch(sh("echo up; exec sleep 1000"))
    await printed(child, "up")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(child.wait())
        await asyncio.sleep(0)
        task.cancel()

    child.kill()

    assert await child.wait() == RawExit(None, signal.SIGKILL)
    assert await child.wait() == RawExit(None, signal.SIGKILL)


async def test_a_stranger_that_keeps_the_pipe_does_not_delay_the_end(launch):
    """It closed the lock, so it is nobody's; its output pipe must not be waited for."""
    script = "(exec 5>&-; echo $$; exec setsid sleep 1000) & read _ </dev/null; sleep 0.3"
    child = launch(sh(script + "; echo last; printf end"))
    raw = await child.wait()

    try:
        assert raw == RawExit(0, None)
        assert [line.text for line in child.output.tail(2)] == ["last", "end"]
    finally:
        for pid in _sleepers():
            os.kill(pid, signal.SIGKILL)


def _sleepers() -> list[int]:
    """The `sleep 1000` of ours that have left their session."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                command = file.read()
            with open(f"/proc/{name}/environ", "rb") as file:
                if command == b"sleep\x001000\0" and b"LLAMASUP_INSTANCE=chat" in file.read():
                    found.append(int(name))
        except OSError:
            continue
    return found


async def test_a_flood_blocks_neither_the_child_nor_the_loop(launch):
    lines = 150_000
    line = "x" * 79 + "\\n"
    script = f"import os; d = b'{line}' * 100\nfor _ in range({lines // 100}): os.write(1, d)"

    async with lag_of_the_loop() as lag:
        child, raw = await run(launch, py(script))

    assert raw == RawExit(0, None)
    assert child.output.book.lines == lines
    assert len(child.output.tail(10**6)) == 2000
    assert lag.cpu < 0.05


async def test_a_long_line_arrives_in_parts(launch):
    child, _ = await run(launch, py("import os; os.write(2, b'y' * 200_000 + b'\\nafter\\n')"))

    *parts, last, after = [line.text for line in child.output.tail(100)]
    assert after == "after"
    assert [len(part) for part in parts] == [16384 + len(" [continued]")] * 12
    assert "".join(part.removesuffix(" [continued]") for part in parts) + last == "y" * 200_000


async def test_the_progress_of_a_load_is_seen(launch):
    grow = "import time; data = bytearray()\nwhile True: data += b'x' * 2_000_000; time.sleep(0.01)"
    child = launch(py(grow))
    assert child.progress() == (0, 0, 0, 0, 0)  # it is not executed yet
    await child.executed()
    await eventually(lambda: child.progress()[1] > 10_000)
    first = child.progress()
    await eventually(lambda: child.progress()[1] > first[1] + 10_000)

    child.kill()
    await child.wait()

    assert child.progress() == (0, 0, 0, 0, 0)


async def test_only_processes_of_the_session_are_ours(launch):
    child = launch(sh("sleep 1000 & echo $!; wait"))
    await eventually(lambda: child.output.tail(1))
    grandchild = int(child.output.tail(1)[0].text)

    assert child.peer_is_ours(child.pid)
    assert child.peer_is_ours(grandchild)
    assert not child.peer_is_ours(os.getpid())
    assert not child.peer_is_ours(1 << 22)
    child.kill()
    await child.wait()
    assert not child.peer_is_ours(child.pid)


async def test_two_hundred_spawns_leave_no_descriptor(launcher, tmp_path):
    await launcher.launch("chat", 0, sh("exit 0")).wait()
    before = open_fds()

    for round_ in range(40):
        children = [
            launcher.launch(f"i{n}", round_, what)
            for n, what in enumerate(
                [sh("exit 1"), spec(("/nope",)), sh("kill -9 $$"), sh("sleep 0 & echo a"), sh("")]
            )
        ]
        for child in children:
            await child.wait()

    assert open_fds() == before
    assert not list(tmp_path.glob("*.sock"))


async def test_from_a_kill_to_the_successors_exec(launcher):
    """Issue 2 asks for 50 ms on a quiet machine; the limit here allows for a busy one."""
    seconds = []
    child = launcher.launch("chat", 0, sh("exec sleep 1000"))
    for gen in range(1, 12):
        await child.executed()
        killed_at = time.monotonic()
        os.kill(child.pid, signal.SIGKILL)
        await child.wait()
        child = launcher.launch("chat", gen, sh("exec sleep 1000"))
        await child.executed()
        seconds.append(time.monotonic() - killed_at)
    child.kill()
    await child.wait()

    print("from the kill to the exec, p50:", sorted(seconds)[5])
    assert sorted(seconds)[5] < 1.0


async def test_the_environment_of_the_daemon_stays_here(tmp_path):
    environ = {"NOTIFY_SOCKET": "/x", "LLAMA_ARG_PORT": "1", "HOME": "/root"}
    launcher = Launcher(str(tmp_path), None, environ, mirror_fd=None)

    child = launcher.launch("chat", 1, sh("env | sort"))
    await child.wait()
    assert {line.text.split("=")[0] for line in child.output.tail(20)} == {
        "GGML_NO_BACKTRACE", "HOME", "LLAMASUP_GENERATION", "LLAMASUP_INSTANCE", "PWD",
        "XDG_CONFIG_HOME",
    }  # fmt: skip


async def test_without_descriptors_a_launch_fails_and_leaks_none(launcher):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = open_fds()
    failures = 0
    for room in range(40):
        resource.setrlimit(resource.RLIMIT_NOFILE, (16 + room, limits[1]))
        try:
            child = launcher.launch("chat", room, sh("exit 0"))
        except SpawnError:
            failures += 1
            continue
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert await child.wait() == RawExit(0, None)

    assert 0 < failures < 40
    assert open_fds() == before
