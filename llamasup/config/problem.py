"""What is wrong with a configuration, and how it is told: one line a problem. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

KeyPath: TypeAlias = tuple[str, ...]
"""The tables and the key that lead to a value, from the top of the file."""


class Level(StrEnum):
    """An error makes the file unusable, a warning does not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with the value at *key*, before it is known which file wrote it."""

    key: KeyPath
    message: str
    level: Level = Level.ERROR


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in *file* at the dotted *key*, "" = the file itself."""

    file: str
    key: str
    message: str
    level: Level = Level.ERROR

    def __str__(self) -> str:
        place = f"{self.file}: {self.key}: " if self.key else f"{self.file}: "
        warning = "warning: " if self.level is Level.WARNING else ""
        return f"{place}{warning}{self.message}"


def render(problems: Iterable[Problem]) -> str:
    """Return one line for each problem, in their order."""
    return "\n".join(str(problem) for problem in problems)


def has_error(findings: Iterable[Finding | Problem]) -> bool:
    """Say whether any of them is more than a warning."""
    return any(found.level is Level.ERROR for found in findings)


def dotted(key: KeyPath) -> str:
    """Return *key* as TOML writes it."""
    return ".".join(part if _is_bare(part) else f'"{part}"' for part in key)


def _is_bare(part: str) -> bool:
    return part != "" and part.isascii() and part.replace("-", "").replace("_", "").isalnum()
