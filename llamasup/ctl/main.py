"""llamasupctl: the entry, and how a command ends."""

import os
import sys
from collections.abc import Sequence

import click

from llamasup import __version__
from llamasup.ctl import commands
from llamasup.ctl.failures import ExitCode
from llamasup.ctl.options import common_options


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> object:
        """Run the verb; a reader that leaves (`| head`) ends it without a word."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # What is left in the buffer must not complain at the very end either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(ExitCode.BROKEN_PIPE)
        return code


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="llamasupctl %(version)s")
def cli() -> None:
    """See and move the instances of llamasup, the daemon of all llama-servers of a machine.

    The options below may stand before the verb or after it.

    \b
    Exit codes:
      0  done                    4  no such instance
      1  failed                  5  timed out; the operation goes on
      2  wrong usage             6  the daemon is unreachable
      3  not ready             130  Ctrl-C

    \b
    Examples:
      llamasupctl status
      llamasupctl restart chat --timeout 5m
      llamasupctl logs chat -f
      llamasupctl --url http://127.0.0.1:9110 status --json

    \b
    Files and environment:
      /run/llamasup/admin.sock   the daemon's admin socket
      LLAMASUP_SOCKET, LLAMASUP_URL, LLAMASUP_TOKEN_FILE   defaults of the options
      NO_COLOR                   no colours
    """


cli.params += common_options()
for command in commands.ALL:
    cli.add_command(command)


def run(arguments: Sequence[str]) -> int:
    """Run the command line *arguments* and return the exit code; messages go to stderr."""
    try:
        code = cli.main(list(arguments), prog_name="llamasupctl", standalone_mode=False)
    except click.ClickException as exc:
        exc.show()
        return exc.exit_code
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    return code if isinstance(code, int) else ExitCode.DONE


def main() -> None:
    """Run llamasupctl."""
    sys.exit(run(sys.argv[1:]))
