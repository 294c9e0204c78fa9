"""``args`` of the file: merging the layers, checking them against the binary, making argv. Pure."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from llamasup.config.options import GONE, RENAMED, Option, Options, did_you_mean
from llamasup.config.problem import Finding, KeyPath, Level

_LISTEN = 'is set by llamasup: write listen = "127.0.0.1:1234" in the instance'
_MODEL = 'is set by llamasup: write model = "/…" in the instance'
_KEY_FILE = 'is set by llamasup: write api_key_file = "/…" in the instance'
_ROUTER = "is for a router of many models, llamasup starts one server for each: remove it"
_TLS = "is for TLS, which belongs to a proxy before llamasup: remove it"
_ACTION = "makes llama-server print something and end: remove it"
OWNED: Mapping[str, str] = {
    "host": _LISTEN,
    "port": _LISTEN,
    "reuse-port": "is not needed, llamasup owns the port: remove it",
    "api-key": _KEY_FILE,
    "api-key-file": _KEY_FILE,
    "ssl-key-file": _TLS,
    "ssl-cert-file": _TLS,
    "api-prefix": "would move the paths that llamasup asks for: remove it",
    "path": "is for a web server, llamasup serves no files: remove it",
    "alias": 'is set by llamasup: write alias = ["…"] in the instance',
    "parallel": "is set by llamasup: write parallel = 1 in the instance",
    "slots": "is always on, llamasup needs it: remove it",
    "no-slots": "cannot be, llamasup needs the slots: remove it",
    "log-file": 'is not needed, llamasup writes the logs: write log_dir = "/…" in [daemon]',
    "log-disable": "would hide why llama-server ends: remove it",
    "model": _MODEL,
    "model-url": _MODEL,
    "docker-repo": _MODEL,
    "hf-repo": _MODEL,
    "hf-file": _MODEL,
    "hf-token": _MODEL,
    "models-dir": _ROUTER,
    "models-preset": _ROUTER,
    "models-max": _ROUTER,
    "models-autoload": _ROUTER,
    "no-models-autoload": _ROUTER,
    "help": _ACTION,
    "usage": _ACTION,
    "version": _ACTION,
    "cache-list": _ACTION,
    "completion-bash": _ACTION,
    "list-devices": _ACTION,
}
"""Options that llamasup sets itself or that cannot work under it, and what to write instead."""

_DOWNLOADS = re.compile(r"(embd|fim|gpt-oss|vision)-.*-(default|spec)")
_SMALLEST_CONTEXT = 256  # tokens; llama-server rounds up to it, a single token aborts it
_FIRST = frozenset({"jinja", "spec-default"})  # later options change what these set


@dataclass(frozen=True, slots=True)
class Arg:
    """One entry of ``args``: *name* as written (with dashes), and the *key* it was written at."""

    name: str
    value: Any
    key: KeyPath


Args: TypeAlias = dict[str, Arg]
"""The merged entries by ``Options.subject``, so that spellings of one option meet."""


def merge(
    layers: Iterable[tuple[KeyPath, Mapping[str, Any]]], options: Options
) -> tuple[Args, list[Finding]]:
    """Merge *layers*, each with the key of its table; the last wins. Tell what one says twice."""
    merged: Args = {}
    findings: list[Finding] = []
    for table, values in layers:
        seen: dict[str, str] = {}
        for written, value in values.items():
            name = written.replace("_", "-")
            subject = options.subject(name)
            if subject in seen:
                text = f"says the same as {seen[subject]}: write one of them"
                findings.append(Finding((*table, written), text))
            seen[subject] = written
            merged[subject] = Arg(name, value, (*table, written))
    return merged, findings


def check_args(args: Args, options: Options) -> list[Finding]:
    """Return what *options*, those of the binary, or llamasup itself cannot take of *args*."""
    findings: list[Finding] = []
    for arg in args.values():
        text = _refusal(arg, options)
        if text is not None:
            findings.append(Finding(arg.key, text))
        elif (option := options.by_name.get(arg.name)) is not None and option.has_no_effect:
            findings.append(Finding(arg.key, "has no effect any more: remove it", Level.WARNING))
    return findings


def _refusal(arg: Arg, options: Options) -> str | None:
    """Say why *arg* cannot be used; the first reason that applies wins."""
    if arg.name.startswith("-"):
        return f"must stand without dashes: write {arg.name.lstrip('-')}"
    short = options.by_short.get(arg.name)
    name = short.name if short is not None and arg.name not in options.by_name else arg.name
    if name in OWNED:
        return OWNED[name]
    if _DOWNLOADS.fullmatch(name):
        return 'downloads a model: write model = "/…" in the instance'
    if name != arg.name:
        return f"is a short spelling: write {name}"
    option = options.by_name.get(name)
    if option is None:
        return _unknown(name, options) if options.is_complete else _unusable(arg.value)
    if option.removed is not None:
        return _renamed(name) or option.removed.replace("--", "")
    if arg.value is False:
        return None
    return _misfit(name, arg.value, option)


def _unknown(name: str, options: Options) -> str:
    renamed = _renamed(name)
    if renamed is not None:
        return renamed
    meant = did_you_mean(name, options.by_name)
    hint = f"did you mean {meant}?" if meant else "remove it, or see llama-server --help"
    return f"is not an option of this llama-server: {hint}"


def _renamed(name: str) -> str | None:
    if name in RENAMED:
        return f"is no option of this llama-server any more: write {RENAMED[name]}"
    if name in GONE:
        return "is no option of this llama-server any more: remove it"
    return None


def _misfit(name: str, value: object, option: Option) -> str | None:
    """Say why *value* does not fit *option*."""
    if option.value is None:
        return None if value is True else f"is a flag: write {name} = true or {name} = false"
    if value is True:
        return f"needs a value: write {name} = {_form(option)}"
    if option.value_count > 1:
        count = option.value_count
        if not isinstance(value, list) or len(value) != count:
            return f"takes {count} values: write {name} = [{option.value.replace(' ', ', ')}]"
    for one in value if isinstance(value, list) else [value]:
        text = _unusable(one, in_list=isinstance(value, list)) or _no_number(name, one, option)
        if text is not None:
            return text
    return None


def _form(option: Option) -> str:
    if option.is_number:
        return option.default if option.default and option.is_whole else "1"
    choices = re.fullmatch(r"[\[{<](.*)[\]}>]", option.value or "")
    return f'"{re.split("[|,]", choices[1])[0]}"' if choices else f'"{option.value}"'


def _unusable(value: object, *, in_list: bool = False) -> str | None:
    """Say why *value* cannot be an argument of any program."""
    match value:
        case str():
            return "has a zero byte in it: write it without" if "\0" in value else None
        case bool() if in_list:
            return "has true or false in its list: write texts or numbers"
        case float() if not math.isfinite(value):
            return "is not a finite number: write one"
        case bool() | int() | float() | dict():
            return None
        case list() if not in_list:
            return next((text for one in value if (text := _unusable(one, in_list=True))), None)
        case _:
            return "is not text, a number, true, false, a list or a table: write it in quotes"


def _no_number(name: str, value: object, option: Option) -> str | None:
    """Say what the binary would misread in silence."""
    if not option.is_number or (isinstance(value, str) and value in option.words):
        return None
    number = _number(value)
    if number is None:
        words = "".join(f' or "{word}"' for word in sorted(option.words))
        like = _suggestion(value, option)
        return f"{json.dumps(value, default=str)} is not a number: write {name} = {like}{words}"
    if option.is_whole and number != int(number):
        return f"must be a whole number: write {name} = {int(number)}"
    if name == "ctx-size" and number != 0 and number < _SMALLEST_CONTEXT:
        return (
            f"is less than {_SMALLEST_CONTEXT} tokens: write {name} = {_SMALLEST_CONTEXT} or more, "
            "or 0 for the model's own"
        )
    return None


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value):
        return float(value)
    return None


def _suggestion(value: object, option: Option) -> str:
    """Guess the number that "4k" stands for."""
    match = re.fullmatch(r"([0-9]+) ?([kKmM])(i?[bB])?", value) if isinstance(value, str) else None
    if match is not None:
        return str(int(match[1]) * (1024 if match[2] in "kK" else 1024**2))
    return _form(option)


def to_argv(args: Args, options: Options) -> list[str]:
    """Return *args* as arguments, in an order that does not depend on how the file is sorted."""
    argv: list[str] = []
    for subject in sorted(args, key=lambda subject: (subject not in _FIRST, subject)):
        argv += _to_words(args[subject], options.by_name.get(args[subject].name))
    return argv


def _to_words(arg: Arg, option: Option | None) -> list[str]:
    flag = f"--{arg.name}"
    match arg.value:
        case True:
            return [flag]
        case False:
            return [f"--{option.negation}"] if option is not None and option.negation else []
        case list() if option is not None and option.value_count > 1:
            return [flag, *map(_to_word, arg.value)]
        case list():
            return [word for value in arg.value for word in (flag, _to_word(value))]
        case _:
            return [flag, _to_word(arg.value)]


def _to_word(value: object) -> str:
    if isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"), default=str)
    return str(value)


def number_of(args: Args, name: str) -> int:
    """Return the whole number given for the option *name*, 0 if there is none."""
    number = _number(args[name].value) if name in args else None
    return 0 if number is None else int(number)


def is_on(args: Args, *names: str) -> bool:
    """Say whether a flag (any of its *names*) is switched on."""
    given = [args[name] for name in names if name in args]
    return any(arg.name in names and arg.value is True for arg in given)


def slot_context(args: Args, parallel: int) -> int | None:
    """Return the tokens of context that each slot is going to have, None = what the model has.

    Measured on build 11434: split slots get their share of ctx-size, a shared pool is there for
    each as a whole; both are rounded up to 256; kv-unified-per-slot is an exact limit below that.
    """
    total = number_of(args, "ctx-size")
    limit = number_of(args, "kv-unified-per-slot")
    if total <= 0:
        return limit if limit > 0 else None
    sharers = 1 if is_on(args, "kv-unified") else parallel
    cells = -(-total // (sharers * 256)) * 256
    return min(cells, limit) if limit > 0 else cells
