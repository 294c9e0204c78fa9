"""The shim, started by hand."""

import fcntl
import os
import resource
import signal
import subprocess
import sys
import time

from llamasup.child import spawn
from llamasup.child.spawn import Order, move_up

SHOW = """
import os, resource
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
print(int(status["SigBlk"], 16), int(status["SigIgn"], 16) & 0x7FFFFFFF)
print(resource.getrlimit(resource.RLIMIT_CORE)[0])
print(sorted(map(int, os.listdir("/proc/self/fd"))))
"""


def run_shim(data: bytes, **popen) -> tuple[bytes, int, bytes]:
    """Give *data* to the shim as its order; return its status text, its end and its output."""
    memory = move_up(os.memfd_create("order"))
    os.write(memory, data)
    os.lseek(memory, 0, os.SEEK_SET)
    reader, writer = os.pipe()
    writer = move_up(writer)
    out, out_writer = os.pipe()
    out_writer = move_up(out_writer)
    actions = [
        (os.POSIX_SPAWN_DUP2, out_writer, 1),
        (os.POSIX_SPAWN_DUP2, out_writer, 2),
        (os.POSIX_SPAWN_DUP2, writer, 3),
        (os.POSIX_SPAWN_DUP2, memory, 4),
    ]
    argv = [sys.executable, "-I", "-S", spawn._SHIM]
    pid = os.posix_spawn(sys.executable, argv, {}, file_actions=actions, **popen)
    for fd in (memory, writer, out_writer):
        os.close(fd)
    with os.fdopen(reader, "rb") as status, os.fdopen(out, "rb") as output:
        texts = status.read(), output.read()
    return texts[0], os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), texts[1]


def test_the_end_of_the_status_after_ready_means_executed():
    order = Order(["/bin/sh", "-c", "echo $A; exit 9"], {"A": "b=c"})

    assert run_shim(order.encode()) == (b"ready", 9, b"b=c\n")


def test_a_failed_exec_is_told_apart_from_an_exit_127():
    assert run_shim(Order(["/nope"], {}).encode()) == (b"ready2 exec", 127, b"")
    assert run_shim(Order(["/bin/sh", "-c", "exit 127"], {}).encode()) == (b"ready", 127, b"")


def test_an_order_of_another_daemon_is_refused():
    """Its daemon died between the spawn and here: nobody would watch the child."""
    fields = Order(["/bin/sh", "-c", "echo run"], {}).encode().split(b"\0")
    fields[0] = b"1" if os.getpid() != 1 else b"2"

    assert run_shim(b"\0".join(fields)) == (b"", 1, b"")


def test_signals_limits_and_descriptors_are_as_new():
    stray = fcntl.fcntl(1, fcntl.F_DUPFD, 40)
    os.set_inheritable(stray, True)
    order = Order([sys.executable, "-c", SHOW], {})
    numbers = [signal.SIGPIPE, signal.SIGHUP, signal.SIGTERM, signal.SIGINT]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    hup = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        status, code, output = run_shim(order.encode())
    finally:
        signal.signal(signal.SIGHUP, hup)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(stray)

    # SIGPIPE (13) and SIGXFSZ (25) are ignored by the Python that prints this, not by the shim.
    ignored = 1 << 12 | 1 << 24
    assert (status, code) == (b"ready", 0)
    lines = output.decode().splitlines()
    assert lines[:2] == [f"0 {ignored}", "0"]
    assert stray not in eval(lines[2])


def test_what_cannot_be_had_is_a_line_in_the_log_and_no_refusal():
    order = Order(["/bin/true"], {}, cgroup_procs="/proc/no/cgroup.procs", oom_score_adj=5000)

    status, code, output = run_shim(order.encode())

    assert (status, code) == (b"ready", 0)
    lines = output.decode().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("llamasup: cannot enter the cgroup: [Errno 2]")
    assert lines[1].startswith("llamasup: cannot set oom_score_adj: [Errno 22]")


def test_the_child_may_open_many_files_and_leaves_no_core():
    order = Order(["/bin/sh", "-c", "ulimit -n; ulimit -c"], {})

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert run_shim(order.encode())[2].split() == [str(min(hard, 65536)).encode(), b"0"]


def test_the_shim_is_quick():
    """Aim: under 20 ms on a quiet machine; here: a bare Python and half as much again."""

    def seconds(run) -> float:
        times = []
        for _ in range(15):
            started = time.perf_counter()
            run()
            times.append(time.perf_counter() - started)
        return min(times)

    bare = seconds(lambda: subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True))
    order = Order(["/bin/true"], {}).encode()
    shim = seconds(lambda: run_shim(order))

    print(f"shim {shim * 1e3:.1f} ms, bare Python {bare * 1e3:.1f} ms")
    assert shim < 1.5 * bare + 0.02
