"""The command line of llama-server, as far as a supervisor can tell: names, values, error texts.

The names are those of build 11434, one option a line in `options.txt`:
``names value|ENV|removed|text``.
"""

import os
import re
import sys
from dataclasses import dataclass, field

_FLOATS = frozenset(
    {
        *("--temp", "--top-p", "--min-p", "--top-nsigma", "--typical", "--dynatemp-range"),
        *("--xtc-probability", "--xtc-threshold", "--repeat-penalty", "--presence-penalty"),
        *("--frequency-penalty", "--dry-multiplier", "--dry-base", "--dynatemp-exp"),
        *("--mirostat-lr", "--mirostat-ent", "--adaptive-target", "--adaptive-decay"),
        *("--rope-scale", "--rope-freq-base", "--rope-freq-scale", "--yarn-ext-factor"),
        *("--yarn-attn-factor", "--yarn-beta-slow", "--yarn-beta-fast", "--video-fps"),
        *("--slot-prompt-similarity", "--defrag-thold"),
    }
)
_CACHE_TYPES = frozenset(["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"])
_CHOICES = {
    "--load-mode": frozenset(["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"]),
    "--numa": frozenset(["distribute", "isolate", "numactl"]),
}
_TRUE = frozenset(["on", "enabled", "true", "1"])
_FALSE = frozenset(["off", "disabled", "false", "0"])


_TABLE = os.path.join(os.path.dirname(__file__), "options.txt")


class UsageError(Exception):
    """A command line that the server refuses; the text is what it prints."""


@dataclass(frozen=True, slots=True)
class Option:
    """One line of the table. *value* is "" for a flag."""

    names: tuple[str, ...]
    value: str
    env: str
    removed: str
    section: str

    @property
    def key(self) -> str:
        """The first long positive name: what the option is called in here."""
        longs = [n for n in self.names if n.startswith("--")] or list(self.names)
        return longs[0]


@dataclass(slots=True)
class Settings:
    """What was asked for: the last value of each option under its key, flags as "1" or "0"."""

    values: dict[str, str] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)  # API keys of all sources

    def text(self, key: str, default: str = "") -> str:
        """Return the value of *key*."""
        return self.values.get(key, default)

    def number(self, key: str, default: int) -> int:
        """Return the value of *key* as C's stoi reads it: "4k" is 4."""
        return stoi(self.values[key]) if key in self.values else default

    def flag(self, key: str, default: bool = False) -> bool:
        """Return whether the flag *key* is on."""
        return self.values[key] == "1" if key in self.values else default


def table() -> list[Option]:
    """Read the table."""
    options = []
    section = ""
    for line in _read(_TABLE).splitlines():
        if line.startswith("# "):
            section = line[2:]
            continue
        body, _, removed = line.partition("|removed|")
        left, _, env = body.rpartition("|") if re.search(r"\|[A-Z_]*$", body) else (body, "", "")
        names, value = _names_and_value(left)
        options.append(Option(names, value, env, removed, section))
    return options


def _names_and_value(left: str) -> tuple[tuple[str, ...], str]:
    match = re.match(r"(-[\w.-]+(?:, -[\w.-]+)*) ?(.*)$", left)
    assert match is not None, left
    return tuple(match[1].split(", ")), match[2]


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def stoi(text: str) -> int:
    """Read an integer as C does: what follows the digits does not matter."""
    match = re.match(r"\s*[+-]?\d+", text)
    if match is None:
        raise ValueError("stoi")
    return int(match[0])


def help_text() -> str:
    """Return what --help prints, in the layout of the real one (the explanations are not there)."""
    lines = []
    section = ""
    for option in table():
        if option.section != section:
            lines += ["", ""] * bool(section) + [f"----- {option.section} -----", ""]
            section = option.section
        lines.append(_usage(option).rstrip("\n"))
    return "\n".join(lines) + "\n"


def _usage(option: Option) -> str:
    names = list(option.names)
    if len(names) > 1 and len(names[0]) <= 6:
        names[0:2] = [f"{names[0] + ', ':<7}{names[1]}"]
    head = f"{', '.join(names)} {option.value}".rstrip()
    about = option.removed or "as in llama-server"
    text = f"{head:<40}{about}" if len(head) < 40 else f"{head}\n{'':40}{about}"
    return text + (f"\n{'':40}(env: {option.env})\n" if option.env else "\n")


def parse(argv: list[str], environ: dict[str, str]) -> Settings:
    """Parse environment and command line; may print and end the program as the real one does.

    Raises ``UsageError``.
    """
    settings = Settings()
    options = table()
    for option in options:
        if option.env in environ:
            _from_environment(option, environ, settings)
    by_name = {name: option for option in options for name in option.names}
    index = 0
    while index < len(argv):
        given = argv[index]
        name = given.replace("_", "-") if given.startswith("--") else given
        if name not in by_name:
            raise UsageError(f"error: invalid argument: {given}")
        option = by_name[name]
        value = None
        if option.value and not option.removed:
            index += 1
            value = argv[index] if index < len(argv) else None
        try:
            _apply(option, name, value, settings)
        except ValueError as exc:
            raise UsageError(_refusal("argument", given, exc, option)) from exc
        index += 1
    return settings


def _refusal(what: str, name: str, exc: ValueError, option: Option) -> str:
    text = f'error while handling {what} "{name}": {exc}\n\n'
    if what == "argument":
        text += f"usage:\n{_usage(option)}\n\nto show complete usage, run with -h"
    return text


def _from_environment(option: Option, environ: dict[str, str], settings: Settings) -> None:
    text = environ[option.env]
    value: str | None = text
    name = option.names[-1] if option.value else option.key
    if not option.value:
        if text not in _TRUE | _FALSE:
            raise UsageError(
                f'error while handling environment variable "{option.env}": unknown value'
            )
        if text in _FALSE:
            settings.values[option.key] = "0"
            return
        value = None
    try:
        _apply(option, name, value, settings)
    except ValueError as exc:
        raise UsageError(_refusal("environment variable", option.env, exc, option)) from exc


def _apply(option: Option, name: str, value: str | None, settings: Settings) -> None:
    """Check and keep one option. Raises ``ValueError`` with the words of the real one."""
    if option.removed:
        raise ValueError(option.removed)
    key = option.key
    if option.value and value is None:
        raise ValueError("expected value for argument")
    if value is None:
        _flag(key, name, settings)
        return
    _check(option, key, value)
    settings.values[key] = value
    if key == "--api-key":
        settings.keys |= {each for each in value.split(",") if each}
    if key == "--api-key-file":
        settings.keys |= _keys_of(value)


def _flag(key: str, name: str, settings: Settings) -> None:
    if key == "--help":
        print(help_text(), end="")
        sys.exit(0)
    if key == "--version":
        print("version: 0.6.0-dev (build 0, commit fake)", file=sys.stderr)
        print("built with Python for Linux", file=sys.stderr)
        sys.exit(0)
    if key == "--list-devices":
        print("Available devices:\n  (none)")
        sys.exit(0)
    negative = name.startswith("--no-") or name in ("-no-kvu", "-nkvo", "-nr", "-nocb", "-no-ag")
    settings.values[key] = "0" if negative else "1"


def _keys_of(path: str) -> set[str]:
    try:
        lines = _read(path).split("\n")
    except OSError as exc:
        raise ValueError(f"error: failed to open file '{path}'\n") from exc
    return {line for line in lines if line and not line.startswith("#")}


def _check(option: Option, key: str, value: str) -> None:
    """Refuse what the real one refuses before it looks at the model. Raises ``ValueError``."""
    choices = _CHOICES.get(key)
    if option.value.startswith("{"):
        choices = frozenset(option.value.strip("{}").split(","))
    if option.value.startswith("[on|off") and value not in _TRUE | _FALSE | {"auto"}:
        raise ValueError(f"error: unknown value for {key}: '{value}'\n")
    if "_CACHE_TYPE_" in option.env and value not in _CACHE_TYPES:
        raise ValueError(f"Unsupported cache type: {value}")
    if choices is not None and value not in choices:
        raise ValueError("invalid value")
    if key == "--slot-save-path" and not os.path.isdir(value):
        raise ValueError(f"not a directory: {value}")
    if key in _FLOATS:
        _check_float(value)
    elif option.value in ("N", "PORT", "SECONDS"):
        _check_number(key, value)


def _check_float(value: str) -> None:
    if re.match(r"\s*[+-]?(\d|\.\d)", value) is None:
        raise ValueError("stof")


def _check_number(key: str, value: str) -> None:
    if key == "--gpu-layers" and value in ("auto", "all"):
        return
    number = stoi(value)
    if key == "--parallel" and number == 0:
        raise ValueError("error: invalid value for n_parallel\n")
