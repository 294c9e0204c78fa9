"""Words for errors that no key of the file can raise today; the others are in test_schema."""

from llamasup.config.complaints import complaint


def test_an_error_without_own_words_keeps_pydantic_s():
    error = {"type": "odd", "loc": ("a",), "msg": "Input is odd", "input": 1}

    assert complaint(error, None) == "input is odd"
