"""Reading the files, laying them into one another, and the secrets."""

import os
import socket

import pytest

from llamasup.config.file import (
    lowest_port,
    read,
    read_api_key,
    read_token,
    substitute,
)
from llamasup.config.problem import Finding, Level, Problem

KEY = ("instances", "chat", "api_key_file")


@pytest.fixture
def main(tmp_path):
    """The path of the main file, with ``conf.d`` beside it."""
    (tmp_path / "conf.d").mkdir()
    return tmp_path / "llamasup.toml"


@pytest.fixture
def secret(tmp_path):
    """Write a secret that only its owner can read."""

    def write(data, mode=0o600):
        path = tmp_path / "secret"
        path.write_bytes(data)
        path.chmod(mode)
        return str(path)

    return write


def test_tables_of_several_files_are_merged(main):
    main.write_text('[instances.a]\nmodel = "/a"\nargs = { x = 1 }\n')
    more = main.parent / "conf.d" / "10-more.toml"
    more.write_text('[instances.a]\nnice = 1\nargs = { y = 2 }\n[instances.b]\nmodel = "/b"\n')
    (main.parent / "conf.d" / "README").write_text("not read")
    (main.parent / "conf.d" / ".hidden.toml").write_text("not read")

    source = read(str(main))

    assert source.tree == {
        "instances": {
            "a": {"model": "/a", "nice": 1, "args": {"x": 1, "y": 2}},
            "b": {"model": "/b"},
        }
    }
    assert (source.files, source.problems) == ((str(main), str(more)), ())
    assert source.file_of(("instances", "a", "args", "y")) == str(more)
    assert source.file_of(("instances", "a", "listen")) == str(main)
    assert source.file_of(("instances", "b", "listen")) == str(more)
    assert source.file_of(("nowhere",)) == str(main)


def test_files_are_read_in_the_order_of_their_names(main):
    main.write_text("")
    for name in ("20.toml", "10.toml", "40.toml", "30.toml", "50.toml"):
        (main.parent / "conf.d" / name).write_text("")

    names = [os.path.basename(file) for file in read(str(main)).files]

    assert names == [
        "llamasup.toml",
        *(f"{n}0.toml" for n in range(1, 6)),
    ]


def test_the_same_key_in_two_files_names_both(main):
    main.write_text('[defaults]\nbackend = "a"\nargs = 5\n')
    more = main.parent / "conf.d" / "x.toml"
    more.write_text('[defaults]\nbackend = "a"\n[defaults.args]\nx = 1\n')

    source = read(str(main))

    text = f"stands in {main} too: write it in one of the two"
    assert source.problems == (
        Problem(str(more), "defaults.backend", text),
        Problem(str(more), "defaults.args", text),
    )
    assert source.tree == {"defaults": {"backend": "a", "args": 5}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a = \n", "is not TOML: invalid value (at line 1, column 5)"),
        (b"a = 1\na = 2\n", "is not TOML: cannot overwrite a value (at line 2, column 6)"),
        (b"a = '\xff'", "cannot read it: byte 5 is not UTF-8: save the file as UTF-8"),
    ],
)
def test_a_file_that_is_no_toml(main, data, message):
    main.write_bytes(data)

    source = read(str(main))

    assert source.problems == (Problem(str(main), "", message),)
    assert not source.complete


def test_a_broken_file_does_not_hide_the_others(main):
    main.write_text("a =")
    (main.parent / "conf.d" / "b.toml").write_text("b = 1")

    assert read(str(main)).tree == {"b": 1}


def test_a_file_that_is_not_there(tmp_path):
    source = read(str(tmp_path / "none.toml"))

    assert [p.message for p in source.problems] == ["cannot read it: there is no such file"]


def test_what_is_no_file_is_not_waited_for(main):
    os.mkfifo(main)

    assert [p.message for p in read(str(main)).problems] == [
        "cannot read it: it is not a regular file"
    ]


def test_a_folder_in_place_of_the_file(main):
    main.mkdir()

    assert [p.message for p in read(str(main)).problems] == [
        "cannot read it: it is not a regular file"
    ]


def test_conf_d_that_is_no_folder(tmp_path):
    (tmp_path / "conf.d").write_text("")
    (tmp_path / "main.toml").write_text("")

    problems = read(str(tmp_path / "main.toml")).problems

    assert problems == (Problem(str(tmp_path / "conf.d"), "", "cannot read it: not a directory"),)


def test_variables_are_replaced_in_the_paths_of_secrets_only():
    tree = {
        "admin": {"token_file": "${DIR}/t"},
        "instances": {"a": {"api_key_file": "/x/${NO}", "model": "${DIR}/m", "alias": ["${DIR}"]}},
    }

    findings = substitute(tree, {"DIR": "/creds"})

    only = "${…} is replaced in api_key_file and token_file only: write the value itself"
    assert tree["admin"]["token_file"] == "/creds/t"
    assert findings == [
        Finding(
            ("instances", "a", "api_key_file"),
            "the environment has no NO: set it, or write the path itself",
        ),
        Finding(("instances", "a", "model"), only),
        Finding(("instances", "a", "alias"), only),
    ]


def test_the_first_key_of_a_key_file(secret):
    assert read_api_key(secret(b"# people\n\nsk-one\nsk-two\n"), KEY) == ("sk-one", [])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b"good\nbad \n",
            "the key in line 2 of {file} has white space around it that llama-server takes for "
            "a part of it: remove it",
        ),
        (
            b"bad\r\n",
            "the key in line 1 of {file} has white space around it that llama-server takes for "
            "a part of it: remove it",
        ),
        (
            "schlüssel\n".encode(),
            "the key in line 1 of {file} does not fit into an HTTP header: write letters, digits "
            "and signs of ASCII",
        ),
        (b"# none\n", "{file} has no key in it: write one, or remove api_key_file"),
        (b"\xff\n", "cannot read {file}: byte 0 is not UTF-8: save the file as UTF-8"),
        (b"x" * 70000, "cannot read {file}: it is longer than 65536 bytes"),
    ],
)
def test_what_is_wrong_with_a_key_file(secret, data, message):
    file = secret(data)

    _key, findings = read_api_key(file, KEY)

    assert findings == [Finding(KEY, message.format(file=file))]


def test_a_secret_that_is_not_there(tmp_path):
    file = str(tmp_path / "none")

    assert read_token(file, KEY) == (
        None,
        [Finding(KEY, f"cannot read {file}: there is no such file")],
    )


def test_a_secret_for_everybody_is_a_warning(secret):
    file = secret(b"t0ken\n", mode=0o644)

    text = f"{file} can be read by everybody: chmod o= {file}"
    assert read_token(file, KEY) == ("t0ken", [Finding(KEY, text, Level.WARNING)])
    assert read_api_key(file, KEY) == ("t0ken", [Finding(KEY, text, Level.WARNING)])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b" \n", "{file} is empty: write a token, or remove token_file"),
        (b"a\nb\n", "{file} has more than one line or odd signs: write one word"),
    ],
)
def test_what_is_wrong_with_a_token(secret, data, message):
    file = secret(data)

    assert read_token(file, KEY)[1] == [Finding(KEY, message.format(file=file))]


def test_the_lowest_port_follows_our_rights():
    """Whatever the rights of the tests are: a port below it cannot be bound, it itself can."""
    port = lowest_port()

    with socket.socket() as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if port > 1:
            with pytest.raises(PermissionError):
                ours.bind(("127.0.0.1", port - 1))
        else:
            ours.bind(("127.0.0.1", 1))
