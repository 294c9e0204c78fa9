"""The log lines of the fake."""

import os
import re

from llamasup.fake.log import Log


def test_a_line_has_time_level_and_tag():
    reader, writer = os.pipe()
    Log(writer).info("srv  llama_server", "model loaded")
    os.close(writer)
    with os.fdopen(reader) as file:
        line = file.read()

    assert re.fullmatch(r"\d+\.\d\d\.\d{3}\.\d{3} I srv  llama_server: model loaded\n", line)


def test_a_reader_that_has_left_does_not_matter():
    reader, writer = os.pipe()
    os.close(reader)

    Log(writer).raw(b"x" * 100_000)

    os.close(writer)
