"""The little program between the daemon and a child: prepares the process, then becomes the child.

Started as ``python -I -S shim.py`` with these descriptors: 0-2 the child's own, 3 the status pipe,
4 the order (a memory file), 5 the lock that the child keeps (optional). It imports built-in modules
only, since its start is on the way from a crash to the successor; it must not import llamasup.

The order is fields that end in a zero byte: daemon's pid, nice, oom_score_adj, cgroup.procs file
(the last three may be empty: leave it), count of arguments, arguments, environment (NAME=value).

To the status pipe it writes ``ready`` just before the exec, ``<errno> <step>`` if that fails; the
exec closes the pipe, so ``ready`` and the end of the file mean that the child runs.
"""

import _signal  # type: ignore[import-not-found] # `signal` imports enum: 10 ms
import posix

_STATUS, _ORDER, _LOCK = 3, 4, 5
_PR_SET_PDEATHSIG = 1
_ENOENT = 2
_MOST_FILES = 65536  # descriptors a child may open; some programs walk through all they may


def _die_with(daemon: int) -> None:
    """Ask for SIGKILL at the death of *daemon*; end here if it is dead already."""
    try:
        import _ctypes

        this = _ctypes.dlopen(None, 2)  # type: ignore[arg-type] # None is this program
        prctl = _ctypes.dlsym(this, "prctl")
        _ctypes.call_function(prctl, (_PR_SET_PDEATHSIG, int(_signal.SIGKILL), 0, 0, 0))
    except Exception:  # the documented way, which costs 15 ms more
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(_signal.SIGKILL), 0, 0, 0)
    if posix.getppid() != daemon:
        posix._exit(1)


def _read_order() -> list[bytes]:
    data = b""
    while chunk := posix.read(_ORDER, 1 << 20):
        data += chunk
    return data.split(b"\0")[:-1]


def _write_file(path: bytes, text: bytes) -> None:
    fd = posix.open(path, posix.O_WRONLY)
    posix.write(fd, text)
    posix.close(fd)


def _try(what: str, function, *args) -> None:  # type: ignore[no-untyped-def] # typing costs 10 ms
    """Do what makes the child better but is not worth refusing to start it; say so in its log."""
    try:
        function(*args)
    except Exception as exc:
        posix.write(2, b"llamasup: cannot " + f"{what}: {exc}\n".encode())


def _limit() -> None:
    import resource

    resource.setrlimit(
        resource.RLIMIT_CORE, (0, 0)
    )  # a core of 60 GB delays the restart by minutes
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))


def _reset_signals() -> None:
    for number in _signal.valid_signals():
        try:
            _signal.signal(number, _signal.SIG_DFL)
        except (OSError, ValueError):  # SIGKILL, SIGSTOP and those of the C library
            continue
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def _close_strangers() -> None:
    """Close what a C library of the daemon may have left open without close-on-exec."""
    for text in posix.listdir("/proc/self/fd"):
        if int(text) > _LOCK:
            try:
                posix.close(int(text))
            except OSError:  # the descriptor that listed the folder
                continue


def _step_of(number: int, binary: bytes) -> str:
    """Tell a missing file from one with a missing interpreter: the kernel says ENOENT to both."""
    if number != _ENOENT:
        return "exec"
    try:
        posix.stat(binary)
    except OSError:
        return "exec"
    return "interpreter"


def main() -> None:
    posix.set_inheritable(_STATUS, False)
    daemon, nice, oom_score_adj, cgroup_procs, count, *rest = _read_order()
    _die_with(int(daemon))
    posix.close(_ORDER)
    _close_strangers()
    if cgroup_procs:
        _try("enter the cgroup", _write_file, cgroup_procs, b"0")
    _try("set limits", _limit)
    if nice:
        _try("set nice", posix.setpriority, posix.PRIO_PROCESS, 0, int(nice))
    if oom_score_adj:
        _try("set oom_score_adj", _write_file, b"/proc/self/oom_score_adj", oom_score_adj)
    posix.umask(0o077)  # its socket is ours alone
    posix.chdir("/")
    _reset_signals()
    argv, env = rest[: int(count)], rest[int(count) :]
    posix.write(_STATUS, b"ready")
    try:
        posix.execve(argv[0], argv, dict(item.split(b"=", 1) for item in env))
    except OSError as exc:
        posix.write(_STATUS, f"{exc.errno} {_step_of(exc.errno or 0, argv[0])}".encode())
    posix._exit(127)


main()
