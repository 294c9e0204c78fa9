"""Reads the configuration's files and the secrets they name. Blocking: run it in a thread.

It never opens anything else, a model's path least of all.
"""

import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llamasup.config.problem import Finding, KeyPath, Level, Problem, dotted

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET_KEYS = frozenset({"api_key_file", "token_file"})
_LONGEST_SECRET = 65536  # bytes
_LONGEST_FILE = 4 * 1024 * 1024  # bytes


@dataclass(frozen=True, slots=True)
class Source:
    """The merged *tree* of *files* and who wrote what. Not *complete*: a file is unreadable."""

    tree: dict[str, Any]
    files: tuple[str, ...]
    origins: Mapping[KeyPath, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    complete: bool = True

    def file_of(self, key: KeyPath) -> str:
        """Return the file that wrote *key*, or the nearest table above it."""
        for length in range(len(key), 0, -1):
            if key[:length] in self.origins:
                return self.origins[key[:length]]
        return self.files[0]

    def problem(self, finding: Finding) -> Problem:
        """Return *finding* with its file."""
        key = finding.key
        return Problem(self.file_of(key), dotted(key), finding.message, finding.level)


class _Merge:
    """Tables of several files, laid into one another."""

    def __init__(self) -> None:
        self.tree: dict[str, Any] = {}
        self.origins: dict[KeyPath, str] = {}
        self.problems: list[Problem] = []

    def add(self, file: str, table: dict[str, Any]) -> None:
        self._add(file, table, self.tree, ())

    def _add(self, file: str, table: dict[str, Any], into: dict[str, Any], above: KeyPath) -> None:
        for name, value in table.items():
            key = (*above, name)
            if name not in into:
                self.origins[key] = file
                into[name] = {} if isinstance(value, dict) else value
            elif not (isinstance(value, dict) and isinstance(into[name], dict)):
                text = f"stands in {self.origins[key]} too: write it in one of the two"
                self.problems.append(Problem(file, dotted(key), text))
                continue
            if isinstance(value, dict):
                self._add(file, value, into[name], key)


def read(path: str) -> Source:
    """Read the file at *path* and ``conf.d/*.toml`` beside it, in the order of their names."""
    merge = _Merge()
    files, problems = _list_files(path)
    complete = not problems
    for file in files:
        try:
            merge.add(file, _load(file))
        except (OSError, ValueError, RecursionError) as exc:
            problems.append(Problem(file, "", _cannot_read(exc)))
            complete = False
    return Source(merge.tree, tuple(files), merge.origins, (*problems, *merge.problems), complete)


def _list_files(path: str) -> tuple[list[str], list[Problem]]:
    folder = Path(path).parent / "conf.d"
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except FileNotFoundError:
        return [path], []
    except OSError as exc:
        return [path], [Problem(str(folder), "", _cannot_read(exc))]
    more = [name for name in names if name.endswith(".toml") and not name.startswith(".")]
    return [path, *(str(folder / name) for name in more)], []


def _load(file: str) -> dict[str, Any]:
    return tomllib.loads(_read_regular(file, _LONGEST_FILE).decode())


def _cannot_read(exc: OSError | ValueError | RecursionError) -> str:
    match exc:
        case FileNotFoundError():
            return "cannot read it: there is no such file"
        case OSError():
            return f"cannot read it: {(exc.strerror or str(exc)).lower()}"
        case UnicodeDecodeError():
            return f"cannot read it: byte {exc.start} is not UTF-8: save the file as UTF-8"
        case tomllib.TOMLDecodeError():
            text = str(exc)
            return f"is not TOML: {text[:1].lower()}{text[1:]}"
        case _:
            return f"cannot read it: {exc}"


def _read_regular(file: str, longest: int) -> bytes:
    """Read a regular file of at most *longest* bytes; a FIFO could block for ever."""
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("it is not a regular file")
        with os.fdopen(fd, "rb", closefd=False) as opened:
            data = opened.read(longest + 1)
    finally:
        os.close(fd)
    if len(data) > longest:
        raise ValueError(f"it is longer than {longest} bytes")
    return data


def substitute(tree: dict[str, Any], environ: Mapping[str, str]) -> list[Finding]:
    """Replace ``${NAME}`` in the paths of secrets within *tree*; tell where else it stands."""
    return list(_substitute(tree, environ, ()))


def _substitute(
    table: dict[str, Any], environ: Mapping[str, str], above: KeyPath
) -> Iterator[Finding]:
    for name, value in table.items():
        key = (*above, name)
        if isinstance(value, dict):
            yield from _substitute(value, environ, key)
        elif name in _SECRET_KEYS and isinstance(value, str):
            for variable in _VARIABLE.findall(value):
                if variable not in environ:
                    text = f"the environment has no {variable}: set it, or write the path itself"
                    yield Finding(key, text)
            table[name] = _VARIABLE.sub(lambda match: environ.get(match[1], ""), value)
        elif _mentions_variable(value):
            text = "${…} is replaced in api_key_file and token_file only: write the value itself"
            yield Finding(key, text)


def _mentions_variable(value: object) -> bool:
    if isinstance(value, list):
        return any(_mentions_variable(one) for one in value)
    return isinstance(value, str) and _VARIABLE.search(value) is not None


def read_api_key(file: str, key: KeyPath) -> tuple[str | None, list[Finding]]:
    """Return the first key of *file*, read as llama-server does: one a line, ``#`` comments."""
    text, findings = _read_secret(file, key)
    if text is None:
        return None, findings
    keys: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line or line.startswith("#"):
            continue
        keys.append(line)
        if line != line.strip():
            fault = "has white space around it that llama-server takes for a part of it: remove it"
            findings.append(Finding(key, f"the key in line {number} of {file} {fault}"))
        elif not (line.isascii() and line.isprintable()):
            fault = "does not fit into an HTTP header: write letters, digits and signs of ASCII"
            findings.append(Finding(key, f"the key in line {number} of {file} {fault}"))
    if not keys:
        findings.append(Finding(key, f"{file} has no key in it: write one, or remove api_key_file"))
    return (keys[0] if keys else None), findings


def read_token(file: str, key: KeyPath) -> tuple[str | None, list[Finding]]:
    """Return the token in *file*, without the white space around it."""
    text, findings = _read_secret(file, key)
    token = None if text is None else text.strip()
    if token == "":
        findings.append(Finding(key, f"{file} is empty: write a token, or remove token_file"))
    elif token is not None and not (token.isascii() and token.isprintable()):
        findings.append(Finding(key, f"{file} has more than one line or odd signs: write one word"))
    return token or None, findings


def _read_secret(file: str, key: KeyPath) -> tuple[str | None, list[Finding]]:
    try:
        text = _read_regular(file, _LONGEST_SECRET).decode()
        mode = Path(file).stat().st_mode
    except (OSError, ValueError) as exc:
        reason = _cannot_read(exc).replace("cannot read it", f"cannot read {file}")
        return None, [Finding(key, reason)]
    if mode & stat.S_IROTH:
        text_of = f"{file} can be read by everybody: chmod o= {file}"
        return text, [Finding(key, text_of, Level.WARNING)]
    return text, []


def lowest_port() -> int:
    """Return the lowest TCP port that this process may listen on."""
    try:
        status = Path("/proc/self/status").read_text()
        first = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    except (OSError, ValueError):
        return 1024
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    may_bind = capabilities is not None and int(capabilities[1], 16) >> 10 & 1  # NET_BIND_SERVICE
    return 1 if may_bind else first
