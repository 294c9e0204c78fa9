"""Checks a configuration as a whole: reads, resolves, asks the binaries; tells all problems.

Nothing here can freeze the daemon: files are read in a thread with a deadline, binaries run as
processes with one. A model's path is never touched.
"""

import asyncio
import os
import re
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Set
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from llamasup.child import tool
from llamasup.child.environment import clean_env
from llamasup.config import file, schema
from llamasup.config.args import Arg
from llamasup.config.file import Source
from llamasup.config.options import Options, parse_help
from llamasup.config.problem import Finding, KeyPath, Level, Problem, has_error, render
from llamasup.config.resolve import Launch, Outside, Resolved, resolve
from llamasup.config.schema import FileModel
from llamasup.config.spec import Settings

__all__ = ["Checked", "Problem", "check", "exit_code", "render"]

FILES_TIMEOUT = 5.0
HELP_TIMEOUT = 5.0
DRY_RUN_TIMEOUT = 10.0  # listing the devices wakes the GPU up
_AT_ONCE = 4  # binaries run at the same time
_MOST_FAULTS = 8  # of one command line; the next check tells the others

_BINARY_KEYS = frozenset({"binary", "backend"})

_T = TypeVar("_T")


class RunTool(Protocol):
    """Runs a program to its end or to *timeout* seconds."""

    async def __call__(
        self, argv: tuple[str, ...], env: dict[str, str], timeout: float
    ) -> tool.ToolResult: ...


@dataclass(frozen=True, slots=True)
class Checked:
    """*settings* are None if one of the *problems* is an error."""

    settings: Settings | None
    problems: tuple[Problem, ...]


def exit_code(checked: Checked) -> int:
    """Return 0 for a configuration that can be used, else EX_CONFIG."""
    return 0 if checked.settings is not None else os.EX_CONFIG


async def check(
    path: str,
    *,
    environ: Mapping[str, str],
    deep: bool = True,
    run: RunTool = tool.run,
    files_timeout: float = FILES_TIMEOUT,
) -> Checked:
    """Check the file at *path*; *deep* also asks each binary what it accepts."""
    try:
        async with asyncio.timeout(files_timeout):
            loaded = await _in_thread(lambda: _load(path, environ))
    except TimeoutError:
        text = f"cannot read it: no answer within {files_timeout:g}s: is its file system there?"
        return Checked(None, (Problem(path, "", text),))
    resolved = resolve(loaded.model, loaded.outside, {})
    if deep and loaded.source.complete:
        resolved = await _ask_binaries(loaded, resolved, environ, run)
    return _verdict(loaded, resolved)


@dataclass(frozen=True, slots=True)
class _Loaded:
    source: Source
    model: FileModel
    outside: Outside
    findings: tuple[Finding, ...]


def _verdict(loaded: _Loaded, resolved: Resolved) -> Checked:
    later = _news(resolved.findings, {finding.key for finding in loaded.findings})
    if not loaded.source.complete:
        later = []  # what seems to be missing may stand in the file that could not be read
    findings = dict.fromkeys((*loaded.findings, *later))
    problems = (*loaded.source.problems, *map(loaded.source.problem, findings))
    return Checked(None if has_error(problems) else resolved.settings, problems)


def _news(findings: Iterable[Finding], told: set[KeyPath]) -> list[Finding]:
    """Return *findings* less what only follows from the wrong values at the keys *told*."""
    hollow = {key[0] for key in told}
    binaries = any(key[-1] in _BINARY_KEYS or key[0] == "backends" for key in told)
    return [
        finding
        for finding in findings
        if finding.key not in told
        and not (len(finding.key) == 1 and finding.key[0] in hollow)
        and not (binaries and finding.key[-1] in _BINARY_KEYS)
    ]


def _load(path: str, environ: Mapping[str, str]) -> _Loaded:
    source = file.read(path)
    findings = file.substitute(source.tree, environ)
    told = {finding.key for finding in findings}
    parsed = schema.parse(source.tree, complete=source.complete)
    findings += [finding for finding in parsed.findings if finding.key not in told]
    findings += _zone_findings(parsed.model.daemon.timezone)
    outside, secret_findings = _read_secrets(parsed.model, source, told)
    return _Loaded(source, parsed.model, outside, (*findings, *secret_findings))


def _zone_findings(timezone: str) -> list[Finding]:
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        text = f'"{timezone}" is not a time zone of this machine: write it like "Europe/Paris"'
        return [Finding(("daemon", "timezone"), text)]
    return []


def _read_secrets(
    model: FileModel, source: Source, told: set[KeyPath]
) -> tuple[Outside, list[Finding]]:
    findings: list[Finding] = []
    api_keys: dict[str, str] = {}
    for name, instance in model.instances.items():
        key: KeyPath = ("instances", name, "api_key_file")
        if instance.api_key_file is not None and key not in told:
            secret, found = file.read_api_key(instance.api_key_file, key)
            findings += found
            if secret is not None:
                api_keys[name] = secret
    token = None
    if model.admin.token_file is not None and ("admin", "token_file") not in told:
        token, found = file.read_token(model.admin.token_file, ("admin", "token_file"))
        findings += found
    return Outside(api_keys, token, file.lowest_port(), source.files), findings


async def _in_thread(work: Callable[[], _T]) -> _T:
    """Run *work* in a thread that nobody waits for: a hung file system must not hold up our end."""
    future: Future[_T] = Future()
    future.set_running_or_notify_cancel()  # so that a result too late is no error

    def body() -> None:
        try:
            future.set_result(work())
        except BaseException as exc:  # noqa: BLE001 - handed to the one who awaits it
            future.set_exception(exc)

    threading.Thread(target=body, name="read config", daemon=True).start()
    return await asyncio.wrap_future(future)


async def _ask_binaries(
    loaded: _Loaded, shallow: Resolved, environ: Mapping[str, str], run: RunTool
) -> Resolved:
    """Resolve again with what each binary says it accepts, then try the command lines on it."""
    asker = _Asker(run, environ, loaded.model.daemon.runtime_dir)
    firsts = {launch.conf.spec.binary: launch for launch in reversed(shallow.launches)}
    helps = await _gather(asker.help(launch) for launch in firsts.values())
    known = {
        binary: options
        for binary, (options, _found) in zip(firsts, helps, strict=True)
        if options is not None
    }
    resolved = resolve(loaded.model, loaded.outside, known)
    tries = [launch for launch in resolved.launches if launch.conf.spec.binary in known]
    wrong = {found.key for found in resolved.findings if found.level is Level.ERROR}
    refusals = await _gather(asker.dry_run(launch, wrong) for launch in tries)
    findings = (finding for found in (*(f for _o, f in helps), *refusals) for finding in found)
    return replace(resolved, findings=tuple(dict.fromkeys((*resolved.findings, *findings))))


async def _gather(works: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work, name="ask a binary") for work in works]
    return [task.result() for task in tasks]


class _Asker:
    """Runs binaries, a few at a time, in the environment of a launch."""

    def __init__(self, run: RunTool, environ: Mapping[str, str], runtime_dir: str) -> None:
        self._run = run
        self._environ = environ
        self._runtime_dir = runtime_dir
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def help(self, launch: Launch) -> tuple[Options | None, list[Finding]]:
        """Return what the binary of *launch* accepts, None if it does not say."""
        binary = launch.conf.spec.binary
        result = await self._ask((binary, "--help"), launch, HELP_TIMEOUT)
        options = parse_help(result.stdout)
        if result.code == 0 and "model" in options.by_name:
            return options, []
        text, level = _no_help(result, binary)
        return None, [Finding(launch.binary_key, text, level)]

    async def dry_run(self, launch: Launch, wrong: Set[KeyPath]) -> list[Finding]:
        """Return what the binary refuses of its command line, less what is *wrong* already.

        It reads all of the line and ends at the first fault, so it is asked again without that.
        """
        spec = launch.conf.spec
        findings: list[Finding] = []
        for _fault in range(_MOST_FAULTS):
            argv = launch.argv_without(wrong | {finding.key for finding in findings})
            result = await self._ask((*argv, "--list-devices"), launch, DRY_RUN_TIMEOUT)
            if result.code is None:
                text = f"{spec.binary} could not try its options: {result.error}"
                return [*findings, Finding(("instances", spec.name), text, Level.WARNING)]
            if result.code == 0:
                break
            findings.append(refusal(result.stderr, spec.name, launch.args.values()))
            if findings[-1].key not in {arg.key for arg in launch.args.values()}:
                break
        return findings

    async def _ask(self, argv: tuple[str, ...], launch: Launch, timeout: float) -> tool.ToolResult:
        env = clean_env(launch.conf.spec.env, self._runtime_dir, self._environ)
        async with self._gate:
            return await self._run(argv, env, timeout)


def _no_help(result: tool.ToolResult, binary: str) -> tuple[str, Level]:
    """Say why *binary* gave no help. One that may answer later must not keep the daemon down."""
    if result.timed_out or (result.error or "").startswith("killed"):
        return f"{binary} --help: {result.error}: its options are not checked", Level.WARNING
    if result.code is None:
        return f"{result.error}: write the path of llama-server", Level.ERROR
    if result.code == 0:
        text = f"{binary} is no llama-server (its --help has no --model): write its path"
        return text, Level.ERROR
    said = _last_line(result.stderr)
    return f"{binary} --help fails: {said}: repair it, or write another path", Level.ERROR


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it says nothing"


_BAD_OPTION = re.compile(r"^error: invalid argument: --?(\S+)$", re.MULTILINE)
_BAD_VALUE = re.compile(r'^error while handling argument "--?([^"]+)": (.+)$', re.MULTILINE)
_ALLOWED = re.compile(r"allowed values: (.+)$", re.MULTILINE)
_CHOICE = re.compile(r"^--?\S.* [\[{<]([^\]}> ]+)[\]}>](?: |$)", re.MULTILINE)


def refusal(stderr: str, name: str, args: Iterable[Arg]) -> Finding:
    """Return the useful line of what the llama-server of instance *name* said of its *args*."""
    keys = {arg.name: arg.key for arg in args}
    keys["api-key-file"] = ("instances", name, "api_key_file")
    option, reason = _fault(stderr)
    key = keys.get(option, ("instances", name, "args"))
    return Finding(key, f"llama-server refuses it: {reason}")


def _fault(stderr: str) -> tuple[str, str]:
    """Return the option that *stderr* complains of ("" = none) and why."""
    if bad := _BAD_VALUE.search(stderr):
        reason = bad[2].removeprefix("error: ")
        if reason in ("stoi", "stol", "stoll", "stof", "stod", "stoul"):
            return bad[1], "it is not a number: write one"
        choice = _ALLOWED.search(stderr) or _CHOICE.search(stderr)
        what = f"write one of {re.sub(r'[|,] ?', ', ', choice[1])}" if choice else "correct it"
        return bad[1], f"{reason}: {what}"
    if bad := _BAD_OPTION.search(stderr):
        return bad[1], "it is no option of this build: remove it"
    return "", f"{_last_line(stderr)}: correct it"
