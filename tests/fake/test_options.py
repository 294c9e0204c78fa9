"""The option table; tests/contract compares how a command line is judged."""

import pytest

from llamasup.fake.engine import layout
from llamasup.fake.options import UsageError, help_text, parse, stoi, table


def test_the_table_has_every_form_of_an_option():
    by_key = {option.key: option for option in table()}

    assert by_key["--ctx-size"].names == ("-c", "--ctx-size")
    assert by_key["--ctx-size"].env == "LLAMA_ARG_CTX_SIZE"
    assert by_key["--flash-attn"].value == "[on|off|auto]"
    assert by_key["--flash-attn"].env == "LLAMA_ARG_FLASH_ATTN"
    assert by_key["--metrics"].value == ""
    assert "--spec-draft-n-max" in by_key["--draft"].removed
    assert len(by_key) == len(table()) > 200


def test_every_name_is_in_the_help():
    text = help_text()

    assert [n for option in table() for n in option.names if n not in text] == []


def test_the_last_of_repeated_options_counts_and_environment_is_weaker():
    settings = parse(["-c", "1", "--ctx-size", "2"], {"LLAMA_ARG_CTX_SIZE": "3"})

    assert settings.number("--ctx-size", 0) == 2


@pytest.mark.parametrize(
    ("argv", "environ", "on"),
    [
        ([], {}, False),
        (["--metrics"], {}, True),
        ([], {"LLAMA_ARG_ENDPOINT_METRICS": "on"}, True),
        ([], {"LLAMA_ARG_ENDPOINT_METRICS": "0"}, False),
    ],
)
def test_flags(argv, environ, on):
    assert parse(argv, environ).flag("--metrics") is on


def test_an_option_without_its_value_is_refused():
    with pytest.raises(UsageError, match="expected value"):
        parse(["--alias"], {})


@pytest.mark.parametrize(("text", "number"), [("4k", 4), (" -3", -3), ("07x", 7)])
def test_numbers_are_read_as_c_does(text, number):
    assert stoi(text) == number


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], (4, 8192, True)),
        (["-np", "2"], (2, 8192, False)),
        (["-c", "65536", "-np", "1"], (1, 8192, False)),
        (["-c", "4000", "-np", "3"], (3, 1536, False)),
    ],
)
def test_slots_and_their_context(argv, expected):
    assert layout(parse(argv, {}), train=8192) == expected
