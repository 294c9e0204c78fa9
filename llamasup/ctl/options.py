"""The options that every verb takes, before it or after it, and what the arguments may be."""

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
from click.shell_completion import CompletionItem

from llamasup.ctl.failures import Failure

if TYPE_CHECKING:
    from llamasup.ctl.client import Client

DEFAULT_SOCKET = "/run/llamasup/admin.sock"

_DURATION = re.compile(r"(?:([0-9.]+)h)?(?:([0-9.]+)m(?!s))?(?:([0-9.]+)(ms|s)?)?")


@dataclass(frozen=True, slots=True)
class Options:
    """How to reach the daemon and how to print. *color* is auto, always or never."""

    socket: str = DEFAULT_SOCKET
    url: str | None = None
    token_file: str | None = None
    json: bool = False
    color: str = "auto"

    def client(self) -> "Client":
        """Return a client; nothing is connected yet."""
        # Imported here, because http.client costs a third of the time of --help.
        from llamasup.ctl.client import Client

        return Client(self.socket, self.url, self._token())

    def _token(self) -> str | None:
        if self.token_file is None:
            return None
        try:
            token = Path(self.token_file).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as exc:
            reason = (isinstance(exc, OSError) and exc.strerror) or "not plain text"
            raise Failure(f"cannot read the token file {self.token_file}: {reason}") from exc
        if not token or not token.isprintable():
            raise Failure(f"the token file {self.token_file} must hold one line of text")
        return token


class Duration(click.ParamType[float]):
    """Seconds, written as ``90``, ``30s``, ``500ms``, ``5m`` or ``1h30m``."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds."""
        if isinstance(value, float):
            return value
        match = _DURATION.fullmatch(value)
        try:
            if match is None or not value:
                raise ValueError(value)
            hours, minutes, seconds = (float(part or 0) for part in match.groups()[:3])
        except ValueError:
            self.fail(
                f"{value!r} is not a duration: write for example 30s, 5m or 1h30m", param, ctx
            )
        if match[4] == "ms":
            seconds /= 1000
        return hours * 3600 + minutes * 60 + seconds


class InstanceName(click.ParamType[str]):
    """The name of an instance; completed by asking the daemon."""

    name = "name"

    def shell_complete(
        self, ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin with *incomplete*; none if the daemon does not answer."""
        options = ctx.find_object(Options) or Options()
        taken = ctx.params.get("names") or ()
        try:
            rows = options.client().status()["instances"]
        except click.ClickException:
            return []
        assert isinstance(rows, list)
        return [
            CompletionItem(row["name"], help=row["phase"])
            for row in rows
            if row["name"].startswith(incomplete) and row["name"] not in taken
        ]


def common_options() -> list[click.Parameter]:
    """Return the options that stand before or after the verb; the last one given counts."""
    options = [
        click.Option(
            ["--socket"],
            metavar="PATH",
            help=f"The daemon's admin socket (LLAMASUP_SOCKET; default {DEFAULT_SOCKET}).",
        ),
        click.Option(["--url"], metavar="URL", help="Ask over TCP instead (LLAMASUP_URL)."),
        click.Option(
            ["--token-file"],
            metavar="FILE",
            help="File with the token that changes over TCP need (LLAMASUP_TOKEN_FILE).",
        ),
        click.Option(["--json"], is_flag=True, default=None, help="Print JSON, for programs."),
        click.Option(
            ["--color"],
            type=click.Choice(["auto", "always", "never"]),
            help="Colour the output (auto: on a terminal, unless NO_COLOR is set).",
        ),
    ]
    for option in options:
        option.expose_value = False
        option.callback = _remember
        # Before the names, so that completion already knows which daemon to ask.
        option.is_eager = True
    return list(options)


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    options = ctx.obj if isinstance(ctx.obj, Options) else from_environment()
    if value is not None:
        assert param.name is not None
        if param.name == "url":
            _check_url(value)
        if param.name == "socket":
            options = replace(options, url=None)
        options = replace(options, **{param.name: value})
    ctx.obj = options


def from_environment() -> Options:
    """Return the options that the environment sets."""
    return Options(
        socket=os.environ.get("LLAMASUP_SOCKET") or DEFAULT_SOCKET,
        url=os.environ.get("LLAMASUP_URL") or None,
        token_file=os.environ.get("LLAMASUP_TOKEN_FILE") or None,
    )


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or parts.path.strip("/") or parts.query:
        raise click.BadParameter(f"{url!r} is no address like http://127.0.0.1:9110")


class Verb(click.Command):
    """A command that takes the common options as well."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += common_options()
