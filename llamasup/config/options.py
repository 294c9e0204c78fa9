"""What a llama-server binary accepts, read from its ``--help``, and what its options became. Pure.

The form of the help (build 11434): an option starts in column 0 with its names and the form of
its value; its text stands from column 40 on, on the same or on the next lines.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches


@dataclass(frozen=True, slots=True)
class Option:
    """One option. Names have no dashes here; *value* is the form of its value, None = a flag."""

    name: str
    also: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    value: str | None = None
    negation: str | None = None  # the name that switches it off
    negates: str | None = None  # the name that this one switches off
    env: str | None = None
    default: str | None = None
    words: frozenset[str] = frozenset()  # what it takes instead of a number
    removed: str | None = None  # the binary's own sentence about what to use instead
    has_no_effect: bool = False

    @property
    def is_number(self) -> bool:
        """Say whether the binary reads the value as a number (it takes "4k" for 4)."""
        return self.value is not None and _NUMBER_FORM.fullmatch(self.value) is not None

    @property
    def is_whole(self) -> bool:
        """Say whether the number is read as an integer, as far as the default shows."""
        return self.default is not None and re.fullmatch(r"-?[0-9]+", self.default) is not None

    @property
    def value_count(self) -> int:
        """Return how many arguments follow the name (START END takes two)."""
        if self.value is None:
            return 0
        return len(self.value.split()) if re.fullmatch(r"[A-Z]+( [A-Z]+)+", self.value) else 1


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one binary, by long name and by short name.

    *is_complete* says that there are no others (false for the few that are known without a binary).
    """

    by_name: Mapping[str, Option]
    by_short: Mapping[str, Option]
    is_complete: bool = True

    def subject(self, name: str) -> str:
        """Return the one name for all spellings of an option, its negative form included."""
        option = self.by_name.get(name)
        return name if option is None else option.negates or option.name

    def lacks(self, name: str) -> bool:
        """Say whether the binary certainly has no option *name*."""
        return self.is_complete and name not in self.by_name


@dataclass(slots=True)
class _Entry:
    head: str
    text: list[str] = field(default_factory=list)


_NUMBER_FORM = re.compile(r"N|SEED|INDEX|SECONDS|SIMILARITY|<-?[0-9]+[^0-9A-Za-z-]+[0-9]+>")
_NAME = r"-{1,2}[A-Za-z][A-Za-z0-9.-]*"
_NAMES = re.compile(rf"({_NAME}(?:,\s*{_NAME})*)(?: (.*))?")
_TEXT_COLUMN = 40
_REMOVED = "the argument has been removed"


def parse_help(text: str) -> Options:
    """Return the options that *text*, the output of ``llama-server --help``, lists."""
    entries: list[_Entry] = []
    for line in text.splitlines():
        if line.startswith("-") and not line.startswith("-----"):
            head, words = _split(line)
            entries.append(_Entry(head, [words]))
        elif entries and line.startswith(" "):
            entries[-1].text.append(line.strip())
    return options_of(option for entry in entries for option in _read(entry))


def options_of(found: Iterable[Option], *, is_complete: bool = True) -> Options:
    """Index *found* by each of its names."""
    by_name: dict[str, Option] = {}
    by_short: dict[str, Option] = {}
    for option in found:
        for name in (option.name, *option.also):
            by_name.setdefault(name, option)
        for name in option.short:
            by_short.setdefault(name, option)
    return Options(by_name, by_short, is_complete)


def _split(line: str) -> tuple[str, str]:
    """Split a first line into names with value form, and text; long names have no text there."""
    if len(line) > _TEXT_COLUMN and line[_TEXT_COLUMN - 1] == " " and line[_TEXT_COLUMN] != " ":
        return line[:_TEXT_COLUMN].rstrip(), line[_TEXT_COLUMN:]
    return line.rstrip(), ""


def _read(entry: _Entry) -> Iterable[Option]:
    match = _NAMES.fullmatch(entry.head)
    if match is None:
        return
    names = [name.strip() for name in match[1].split(",")]
    value = (match[2] or "").strip() or None
    text = " ".join(line for line in entry.text if line)
    long = [name[2:] for name in names if name.startswith("--")]
    short = tuple(name[1:] for name in names if not name.startswith("--"))
    if not long:
        return
    # "--perf, --no-perf" is one option with a negative form, "--no-host" alone is a plain flag.
    positive = [name for name in long if not name.startswith("no-")] or long
    negative = [name for name in long if name not in positive] if value is None else []
    env = re.search(r"\(env: ([A-Z0-9_]+)\)", text)
    default = re.search(r"default: '?([^\s,;')]+)", text)
    yield Option(
        name=positive[0],
        also=tuple(positive[1:]),
        short=tuple(name for name in short if not (negative and name.startswith("n"))),
        value=value,
        negation=_negation(positive, negative),
        env=env[1] if env else None,
        default=default[1] if default else None,
        words=frozenset(re.findall(r"'([a-z]+)'", text)),
        removed=text.partition(" (env")[0] if text.startswith(_REMOVED) else None,
        has_no_effect="(DEPRECATED)" in text,
    )
    for name in negative:
        yield Option(name, short=tuple(s for s in short if s.startswith("n")), negates=positive[0])


def _negation(positive: list[str], negative: list[str]) -> str | None:
    """Return the negative form of the first positive name, else any other."""
    exact = f"no-{positive[0]}"
    return exact if exact in negative else next(iter(negative), None)


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return the one of *known* that *word* probably stands for."""
    close = get_close_matches(word, sorted(known), n=1, cutoff=0.7)
    return close[0] if close else None


_LOAD_MODES = {
    "mmap": 'load-mode = "mmap"',
    "no-mmap": 'load-mode = "none"',
    "mlock": 'load-mode = "mlock"',
    "dio": 'load-mode = "dio"',
    "direct-io": 'load-mode = "dio"',
    "ndio": 'load-mode = "none"',
    "no-direct-io": 'load-mode = "none"',
}
RENAMED: Mapping[str, str] = {
    **_LOAD_MODES,
    "draft": "spec-draft-n-max = 3",
    "draft-n": "spec-draft-n-max = 3",
    "draft-max": "spec-draft-n-max = 3",
    "draft-min": "spec-draft-n-min = 0",
    "draft-n-min": "spec-draft-n-min = 0",
    "spec-ngram-size-n": "spec-ngram-simple-size-n = 12",
    "spec-ngram-size-m": "spec-ngram-simple-size-m = 48",
    "spec-ngram-min-hits": "spec-ngram-simple-min-hits = 1",
    "log-format": "log-jsonl = true",
    "clear-idle": "cache-idle-slots = true",
    "no-clear-idle": "cache-idle-slots = false",
}
"""What to write for an option that newer builds do not have."""

GONE = frozenset(
    {"ctx-size-draft", "slots-endpoint-disable", "lora-base", "models-allow-extra-args"}
)
"""Options that newer builds do not have and that nothing replaces."""


_SWITCHES = (
    "cache-prompt",
    "cont-batching",
    "context-shift",
    "jinja",
    "kv-offload",
    "kv-unified",
    "mmproj-offload",
    "op-offload",
    "repack",
    "ui",
    "warmup",
)


def _value(name: str, form: str, *also: str, default: str | None = None, short: str = "") -> Option:
    words = frozenset({"auto", "all"} if name == "gpu-layers" else ())
    return Option(name, also, tuple(short.split()), form, default=default, words=words)


FALLBACK = options_of(
    [
        Option("embedding", ("embeddings",)),
        Option("rerank", ("reranking",)),
        Option("metrics"),
        *(
            option
            for name in _SWITCHES
            for option in (Option(name, negation=f"no-{name}"), Option(f"no-{name}", negates=name))
        ),
        _value("ctx-size", "N", default="0", short="c"),
        _value("gpu-layers", "N", "n-gpu-layers", default="auto", short="ngl"),
        _value("batch-size", "N", default="2048", short="b"),
        _value("ubatch-size", "N", default="512", short="ub"),
        _value("threads", "N", default="-1", short="t"),
        _value("threads-batch", "N", short="tb"),
        _value("cache-ram", "N", default="8192", short="cram"),
        _value("sse-ping-interval", "N", default="30"),
        _value("kv-unified-per-slot", "N"),
        _value("n-cpu-moe", "N", short="ncmoe"),
        _value("predict", "N", "n-predict", default="-1", short="n"),
        _value("flash-attn", "[on|off|auto]", short="fa"),
        _value("load-mode", "MODE", short="lm"),
        _value("cache-type-k", "TYPE", short="ctk"),
        _value("cache-type-v", "TYPE", short="ctv"),
        _value("pooling", "{none,mean,cls,last,rank}"),
        _value("device", "<dev1,dev2,..>", short="dev"),
        _value("mmproj", "FILE", short="mm"),
        _value("chat-template-kwargs", "STRING"),
        _value("reasoning-format", "FORMAT"),
    ],
    is_complete=False,
)
"""The usual options, for when no binary could be asked. Others are then passed on unchecked."""
