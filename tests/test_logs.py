"""The daemon's own log goes to stderr and never makes anybody wait."""

import logging
import os
import subprocess
import sys

import pytest

from llamasup.logs import logging_to_stderr


def test_lines_reach_stderr_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    with logging_to_stderr("info", {}):
        for number in range(100):
            logging.getLogger("x").info("line %d", number)

    lines = capfd.readouterr().err.splitlines()
    assert [line.split("INFO    ")[1] for line in lines] == [f"line {n}" for n in range(100)]


def test_journald_gets_priorities(capfd: pytest.CaptureFixture[str]) -> None:
    with logging_to_stderr("debug", {"JOURNAL_STREAM": "1:2"}):
        logging.getLogger("x").warning("careful")
        logging.getLogger("x").error("bad\nnews")

    assert capfd.readouterr().err == "<4>careful\n<3>bad\n news\n"


def test_the_level_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    with logging_to_stderr("warning", {}):
        logging.getLogger("x").info("not shown")

    assert capfd.readouterr().err == ""


def test_a_stderr_that_nobody_reads_does_not_block() -> None:
    """A child fills its stderr pipe and still gets to its last statement, a byte on stdout."""
    code = (
        "import logging, os\n"
        "from llamasup.logs import logging_to_stderr\n"
        "context = logging_to_stderr('info', {})\n"
        "context.__enter__()\n"
        "for n in range(30000): logging.getLogger('x').info('%d %s', n, 'y' * 100)\n"
        "os.write(1, b'!')\n"
        "os._exit(0)\n"
    )
    reader, writer = os.pipe()
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=writer)
    os.close(writer)
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.read(1) == b"!"
    assert child.wait(timeout=30) == 0
    os.close(reader)
