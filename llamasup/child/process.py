"""Launch the llama-server of an instance and see it to its end: the end of every process of it."""

import asyncio
import contextlib
import fcntl
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from llamasup.child import lock
from llamasup.child.cgroup import Cgroup, Leaf
from llamasup.child.environment import clean_env
from llamasup.child.logs import Logs
from llamasup.child.output import LogBook, OutputReader
from llamasup.child.reaper import reap_orphans
from llamasup.child.spawn import Order, Process, RawExit, pipe
from llamasup.config.spec import Spec
from llamasup.errors import SpawnError
from llamasup.paths import empty_config_home, lock_path, socket_path

_PIPE_SIZE = 1 << 20  # bytes a child may write while our loop is busy
_FIRST_DELAY = 0.002  # seconds between looks for survivors, doubled up to the longest
_LONGEST_DELAY = 1.0
_LOG_TIMEOUT = 2.0  # seconds for each kind of log to be written at the end


class Launcher:
    """Starts generations and keeps their output.

    *log_dir* None: no files. *environ* is the daemon's environment. *cgroup* None: there is none.
    *mirror_fd*: where all output is copied to, None for nowhere.
    """

    def __init__(
        self,
        runtime_dir: str,
        log_dir: str | None,
        environ: Mapping[str, str],
        cgroup: Cgroup | None = None,
        mirror_fd: int | None = 2,
    ) -> None:
        self._runtime_dir = runtime_dir
        self._logs = Logs(log_dir, mirror_fd)
        self._environ = environ
        self._cgroup = cgroup
        Path(empty_config_home(runtime_dir)).mkdir(parents=True, exist_ok=True)

    def launch(self, name: str, gen: int, spec: Spec) -> "Child":
        """Start generation *gen*, to be called in the main thread with a running loop.

        Returns before the binary is executed, see `Child.executed`. Raises `SpawnError` if another
        process of the instance lives or the machine has no room for one more.
        """
        # No await in here: a launch cancelled half way would leave a process without an owner.
        path = lock_path(self._runtime_dir, name)
        with contextlib.ExitStack() as stack:
            try:
                held = lock.open_lock(path)
                stack.callback(os.close, held)  # the child's copy keeps it locked
                watch = lock.open_lock(path)
            except OSError as exc:
                raise SpawnError(f"cannot open {path}: {exc.strerror}") from exc
            closing_on_failure = stack.enter_context(contextlib.ExitStack())
            closing_on_failure.callback(os.close, watch)
            if not lock.try_lock(held):
                raise SpawnError(f"cannot start {name}: {_who_holds(held)}")
            child = self._start(name, gen, spec, held, watch)
            closing_on_failure.pop_all()
            lock.record(held, child.pid, gen)
            return child

    def book(self, name: str) -> LogBook:
        """Return the kept output of instance *name*, empty if it never ran."""
        return self._logs.book(name)

    def last_lines(self, name: str, gen: int, lines: int) -> list[str]:
        """Return the last lines that generation *gen* has written, as far as they are kept."""
        return [line.text for line in self.book(name).tail(lines, gen)]

    def reap_orphans(self) -> None:
        """Reap dead processes that our children left to us."""
        with contextlib.suppress(OSError):  # no descriptors left to look: later is early enough
            reap_orphans()

    async def close(self) -> None:
        """Write what the logs still hold, within a few seconds."""
        await asyncio.to_thread(self._logs.close, _LOG_TIMEOUT)

    def _start(self, name: str, gen: int, spec: Spec, held: int, watch: int) -> "Child":
        socket = socket_path(self._runtime_dir, name, gen)
        Path(socket).unlink(missing_ok=True)
        leaf = self._cgroup.leaf(name) if self._cgroup else None
        env = clean_env(spec.env, self._runtime_dir, self._environ)
        env |= {"LLAMASUP_INSTANCE": name, "LLAMASUP_GENERATION": str(gen)}
        order = Order(
            argv=(*spec.argv, "--host", socket),
            env=env,
            nice=spec.nice or None,
            oom_score_adj=spec.oom_score_adj,
            cgroup_procs=leaf.procs if leaf else None,
        )
        self._logs.start_run(name, gen)
        return Child(name, gen, order, socket, held, watch, leaf, self._logs)


def _who_holds(fd: int) -> str:
    pids = lock.holders(fd)
    if not pids:
        return "its lock is held by a process that cannot be seen"
    return f"pid {pids[0]} ({lock.command_name(pids[0])}) of an earlier generation still runs"


class Child:
    """One generation: its main process and whatever that has started."""

    def __init__(
        self,
        name: str,
        gen: int,
        order: Order,
        socket: str,
        held: int,
        watch: int,
        leaf: Leaf | None,
        logs: Logs,
    ) -> None:
        self.name = name
        self.gen = gen
        self.socket = socket
        self._watch = watch  # our own open file of the lock: tells whether it is free
        self._leaf = leaf
        self._news = asyncio.Event()
        self._kill_asked = False
        self._gone: RawExit | None = None
        reader, writer = pipe()
        with contextlib.suppress(OSError):  # the user's share of pipe memory may be used up
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
        try:
            self._process = Process(order, writer, writer, held, self._tell)
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        self.pid = self._process.pid
        self.output = OutputReader(reader, logs.book(name), gen)

    async def executed(self) -> None:
        """Return when the binary was executed; raise `SpawnError` with the reason if it cannot be.

        The binary may lie on a hung mount: this may take for ever. `wait` is due in any case.
        """
        while self._process.executed is None:
            await self._news_within(None)
        if not self._process.executed:
            raise SpawnError(self._process.error, hopeless=self._process.is_hopeless)

    async def main_ended(self) -> None:
        """Return when the main process has ended, whether or not others of the child live on."""
        while not self._process.ended:
            await self._news_within(None)

    def terminate(self) -> None:
        """Ask the main process to end: SIGTERM, and SIGCONT in case somebody stopped it."""
        self._process.send(signal.SIGTERM)
        self._process.send(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL to every process of this generation; `wait` does so until none is left."""
        self._kill_asked = True
        self._process.kill_group()
        if self._leaf:
            with contextlib.suppress(OSError):  # no descriptors left: `wait` comes back to it
                self._leaf.kill()
        self._tell()

    async def wait(self) -> RawExit:
        """Return how the main process ended, once every process of this generation is gone.

        Survivors of the main process are killed. Whoever does not die of that keeps this waiting.
        """
        delay = _FIRST_DELAY
        while self._gone is None:
            if self._process.ended:
                self._process.kill_group()  # before the reap: after it the number may be another's
                raw = self._process.reap()
                if self._all_gone():
                    await self.output.finish()
                    self._gone = raw
                    self._release()
                    break
            if not (self._process.ended or self._kill_asked):
                await self._news_within(None)
                continue
            await self._news_within(delay)
            with contextlib.suppress(OSError):  # no descriptors left to look: the next round will
                await self._kill_survivors()
            delay = min(2 * delay, _LONGEST_DELAY)
        return self._gone

    def progress(self) -> tuple[int, ...]:
        """Return numbers that move while a model loads: RssFile and RssAnon in KiB, bytes read by
        calls and from disk, CPU time in clock ticks. All 0 before the exec and after the end.
        """
        if not self._process.executed or self._process.ended:
            return (0, 0, 0, 0, 0)
        status = _numbers(f"/proc/{self.pid}/status")
        io = _numbers(f"/proc/{self.pid}/io")
        stat = lock.stat_fields(self.pid)
        ticks = int(stat[11]) + int(stat[12]) if stat else 0
        return (
            status.get("RssFile", 0),
            status.get("RssAnon", 0),
            io.get("rchar", 0),
            io.get("read_bytes", 0),
            ticks,
        )

    def peer_is_ours(self, peer_pid: int) -> bool:
        """Whether *peer_pid*, the process behind a socket, belongs to this generation's session."""
        if self._process.reaped:
            return False
        try:
            return os.getsid(peer_pid) == self.pid
        except OSError:
            return False

    def _all_gone(self) -> bool:
        return lock.is_free(self._watch) and not (self._leaf and self._leaf.populated())

    async def _kill_survivors(self) -> None:
        if self._leaf:
            self._leaf.kill()
        if not lock.is_free(self._watch):
            # In a thread: on a busy machine there are many thousand links to read.
            await asyncio.to_thread(lock.kill_holders, self._watch)

    def _release(self) -> None:
        os.close(self._watch)
        Path(self.socket).unlink(missing_ok=True)
        if self._leaf:
            self._leaf.remove()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _news_within(self, timeout: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._news.wait()


def _numbers(path: str) -> dict[str, int]:
    """Return the numbers of a /proc file of ``name: number unit`` lines; empty if it is gone."""
    try:
        text = Path(path).read_text(errors="replace")
    except OSError:
        return {}
    words = (line.split() for line in text.splitlines())
    return {w[0].rstrip(":"): int(w[1]) for w in words if len(w) > 1 and w[1].isdigit()}
