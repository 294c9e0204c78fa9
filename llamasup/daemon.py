"""The daemon: arguments, wiring, signals, exit codes. The composition root: nobody imports it."""

import argparse
import asyncio
import faulthandler
import gc
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import uvloop

from llamasup import __version__, paths
from llamasup.adapters import Child
from llamasup.admin.app import AdminServer
from llamasup.check import Checked, check, exit_code, render
from llamasup.child.cgroup import Cgroup
from llamasup.child.leftovers import DaemonLock, clear_leftovers
from llamasup.child.output import LogBook
from llamasup.child.process import Launcher
from llamasup.child.reaper import become_subreaper
from llamasup.clock import SystemClock
from llamasup.config.schema import json_schema
from llamasup.config.spec import InstanceConf, Settings, Spec
from llamasup.core.model import Haste, News, Verb
from llamasup.core.operations import Operation
from llamasup.core.routes import Admission, Hold
from llamasup.core.status import DaemonStatus, Status
from llamasup.errors import LlamasupError
from llamasup.events import EventLog
from llamasup.front.app import Front
from llamasup.front.gate import Gate
from llamasup.logs import logging_to_stderr
from llamasup.probe.health import Prober
from llamasup.supervisor import LONGEST_SLEEP, Supervisor
from llamasup.systemd import Notifier

log = logging.getLogger(__name__)

DEFAULT_CONFIG = "/etc/llamasup/llamasup.toml"
EXIT_FAILED = 1
EXIT_INTERNAL = 70  # EX_SOFTWARE
LEFTOVER_TIMEOUT = 10.0


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command ``llamasup``; ends the process."""
    try:
        code = _main(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of --schema or --check has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_FAILED
    sys.exit(code)


def _open_standard_files() -> None:
    """Open what was closed of 0, 1 and 2: else the next socket would get the number of stderr."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    # Python has none for what was closed when it started.
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 - as long as we live
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _main(argv: Sequence[str]) -> int:
    _open_standard_files()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it means "reload", and must never end us
    parser = _parser()
    options = parser.parse_args(argv)
    if options.json and options.check is None:
        parser.error("--json goes with --check")
    if options.schema:
        print(json.dumps(json_schema(), indent=2))  # noqa: T201 - output asked for
        return 0
    if options.file is not None and options.check is None:
        parser.error("FILE goes with --check; the daemon takes --config FILE")
    path = os.path.abspath(options.check or options.file or options.config)  # noqa: PTH100 - touches no file
    checked = asyncio.run(check(path, environ=os.environ))
    if options.json:
        print(json.dumps(_report(checked), indent=2))  # noqa: T201 - output asked for
    elif checked.problems:
        print(render(checked.problems), file=sys.stderr)  # noqa: T201 - before there is a log
    if options.check is not None or checked.settings is None:
        if checked.settings is not None and not options.json:
            print(f"{path}: ok")  # noqa: T201 - output asked for
        return exit_code(checked)
    with logging_to_stderr(checked.settings.log_level, os.environ):
        return _run(checked.settings, path)


def _report(checked: Checked) -> dict[str, Any]:
    problems = [
        {"file": one.file, "key": one.key, "message": one.message, "level": str(one.level)}
        for one in checked.problems
    ]
    return {"ok": checked.settings is not None, "problems": problems}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llamasup",
        description="Own every llama-server of this machine: launch, watch, restart, front them.",
        epilog="Exit status: 0 stopped cleanly; 1 failed, the log says why; 2 usage; 70 internal "
        "error; 78 the configuration cannot be used, every problem is printed. Signals: SIGTERM "
        "and SIGINT stop after a drain, a second one skips the drain, a third one kills; SIGUSR1 "
        "prints all stacks.",
    )
    parser.add_argument(
        "--config", metavar="FILE", default=DEFAULT_CONFIG, help=f"default: {DEFAULT_CONFIG}"
    )
    parser.add_argument(
        "--check",
        metavar="FILE",
        nargs="?",
        const="",
        help="check FILE (default: the --config one), print every problem, end with 0 or 78",
    )
    # FILE may stand apart from --check, behind --json for one.
    parser.add_argument("file", metavar="FILE", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument(
        "--json", action="store_true", help="with --check: print the problems as JSON"
    )
    parser.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of the file and end"
    )
    parser.add_argument("--version", action="version", version=f"llamasup {__version__}")
    return parser


def _run(settings: Settings, config: str) -> int:
    faulthandler.register(signal.SIGUSR1)
    _allow_many_files()
    gc.freeze()  # what is loaded stays: the collector need not look at it again and again
    try:
        _make_folder(paths.empty_config_home(settings.runtime_dir))
        lock = DaemonLock(settings.runtime_dir)
        lock.acquire()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, config))
    except LlamasupError as exc:
        for line in str(exc).splitlines():
            log.error("%s", line)
        return EXIT_FAILED
    except Exception:
        log.exception("internal error, the daemon ends")
        return EXIT_INTERNAL
    return 0


def _make_folder(path: str) -> None:
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise LlamasupError(f"cannot make {path} (in runtime_dir): {exc.strerror}") from exc


def _allow_many_files() -> None:
    """Raise the soft limit of open files: each client takes two of them."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _starting(conf: InstanceConf) -> Admission:
    """Let requests wait from the first moment that the ports are open."""
    policy = conf.policy
    return Admission(Hold("llamasup is starting"), policy.max_held, policy.hold_timeout)


async def _serve(settings: Settings, config: str) -> None:
    await Daemon(settings, config).run()


class Daemon:
    """Everything wired together. Also what the admin API may ask (`admin.control.Control`)."""

    def __init__(self, settings: Settings, config: str) -> None:
        self._settings = settings
        self._config = config
        self._clock = SystemClock()
        self._started = self._clock.now().wall
        self._notifier = Notifier(os.environ, os.getpid())
        self.events = EventLog()
        self._gate = Gate(asyncio.get_running_loop())
        self._launcher = Launcher(
            settings.runtime_dir, settings.log_dir, dict(os.environ), Cgroup.detect()
        )
        self._front = Front(settings.runtime_dir, self._gate)
        self._supervisor = Supervisor(
            self._launcher,
            self._gate,
            self._prober,
            self._clock,
            self.events,
            on_handled=self._handled,
            longest_sleep=self._longest_sleep(),
        )
        self._admin = AdminServer(self, settings.admin)
        self._shutdowns = 0
        self._failure: LlamasupError | None = None  # why it cannot go on

    # --- life ---

    async def run(self) -> None:
        """Supervise until a signal asks to stop and everything has ended."""
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._shut_down)
        loop.add_signal_handler(signal.SIGHUP, self._refuse_reload)
        become_subreaper()
        try:
            # The ports first: who cannot have them must not touch what another daemon may own.
            self._gate.publish({conf.name: _starting(conf) for conf in self._settings.instances})
            await self._front.configure(
                {conf.name: conf.listen for conf in self._settings.instances}
            )
            await self._clear_leftovers()
            async with asyncio.TaskGroup() as group:
                self._supervisor.load(self._settings.instances)
                group.create_task(self._supervisor.run(), name="supervisor")
                await self._open_admin()
        finally:
            await self._front.close()
            await self._admin.close()
            await self._launcher.close()
            self._notifier.close()
            self._ignore_signals()
        if self._failure is not None:
            raise self._failure

    async def _open_admin(self) -> None:
        """Answer once there is something to tell: status must not be empty at first."""
        await self._supervisor.started.wait()
        try:
            await self._admin.start()
        except LlamasupError as exc:
            self._failure = exc
            self._supervisor.shut_down(Haste.KILL)
        else:
            self._notifier.ready()

    async def _clear_leftovers(self) -> None:
        for leftover in await clear_leftovers(self._settings.runtime_dir, LEFTOVER_TIMEOUT):
            log.warning("%s", leftover)
            self.events.append(
                self._clock.now().wall, leftover.name, "leftover", str(leftover), "warning"
            )

    def _shut_down(self) -> None:
        haste = Haste(min(self._shutdowns, Haste.KILL))
        self._shutdowns += 1
        log.info("stop asked for (%s)", haste.name.lower())
        self._notifier.stopping()
        self._supervisor.shut_down(haste)

    def _ignore_signals(self) -> None:
        """Let nothing turn the clean end into a death by signal: all is done."""
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(signum)
            signal.signal(signum, signal.SIG_IGN)

    def _refuse_reload(self) -> None:
        log.warning("SIGHUP: this version cannot reload its configuration; restart the service")

    def _handled(self) -> None:
        now = self._clock.now()
        self._notifier.status(self._supervisor.summary())
        self._notifier.feed_watchdog(now)
        if self._shutdowns:
            self._notifier.extend_stop(now)

    def _longest_sleep(self) -> float:
        period = self._notifier.watchdog_period
        return LONGEST_SLEEP if period is None else min(LONGEST_SLEEP, period / 3)

    def _prober(self, spec: Spec, gen: int, child: Child, post: Callable[[News], None]) -> Prober:
        return Prober(
            spec,
            gen,
            child.socket,
            peer_is_ours=child.peer_is_ours,
            progress=child.progress,
            post=post,
        )

    # --- what the admin API may ask ---

    def status(self) -> Status:
        """Return everything ``llamasupctl status`` shows."""
        summary = self._supervisor.summary()
        daemon = DaemonStatus(
            version=__version__,
            pid=os.getpid(),
            started=self._started,
            config=self._config,
            summary=summary,
            shutting_down=self._shutdowns > 0,
        )
        return Status(daemon, self._supervisor.instance_rows())

    def command(self, name: str, verb: Verb, *, now: bool = False) -> Operation:
        """Carry out an operator's command. Raises `UnknownInstanceError`."""
        return self._supervisor.command(name, verb, now=now)

    def operation(self, operation_id: str) -> Operation | None:
        """Return an operation as it stands."""
        return self._supervisor.operation(operation_id)

    async def operation_ended(self, operation_id: str) -> Operation:
        """Wait until the operation is over."""
        return await self._supervisor.operation_ended(operation_id)

    def log_book(self, name: str) -> LogBook:
        """Return the kept output of an instance. Raises `UnknownInstanceError`."""
        return self._launcher.book(name)

    def healthy(self) -> bool:
        """Tell whether the control loop handles its facts in time."""
        return self._supervisor.healthy()
