"""What can go wrong on the command line, each with its exit code. The text says what to do."""

from enum import IntEnum

import click


class ExitCode(IntEnum):
    """The exit codes of llamasupctl."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_READY = 3
    NO_SUCH_INSTANCE = 4
    TIMED_OUT = 5
    UNREACHABLE = 6
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class Failure(click.ClickException):
    """Ends the command with *exit_code* and one sentence on stderr."""

    exit_code = ExitCode.FAILED

    def show(self, file: object = None) -> None:  # noqa: ARG002 - click's signature
        """Print the sentence."""
        click.echo(f"llamasupctl: {self.format_message()}", err=True)


class NoSuchInstance(Failure):
    """The daemon knows no instance of this name."""

    exit_code = ExitCode.NO_SUCH_INSTANCE


class Unreachable(Failure):
    """The daemon does not answer."""

    exit_code = ExitCode.UNREACHABLE
