"""Each key's form; what is wrong is told and left out."""

import tomllib

import pytest

from llamasup.config.problem import dotted
from llamasup.config.schema import FileModel, json_schema, model_at, parse
from llamasup.config.spec import Address


def parsed(text):
    return parse(tomllib.loads(text))


def told(text):
    return {dotted(finding.key): finding.message for finding in parsed(text).findings}


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:1234", Address("127.0.0.1", 1234)),
        ("localhost:1", Address("127.0.0.1", 1)),
        ("[::]:65535", Address("::", 65535)),
        ("[0:0:0:0:0:0:0:1]:80", Address("::1", 80)),
    ],
)
def test_an_address_is_read(listen, address):
    assert parsed(f'admin.listen = "{listen}"').model.admin.listen == address


LITERAL = 'write it like "127.0.0.1:1234", "0.0.0.0:1234" or "[::1]:1234"'


@pytest.mark.parametrize(
    ("listen", "message"),
    [
        ("1234", '1234 names no address: write "127.0.0.1:1234" or "0.0.0.0:1234"'),
        ("true", 'must be an address and a port: write it like "127.0.0.1:1234"'),
        ('"127.0.0.1"', '"127.0.0.1" has no port: write it like "127.0.0.1:1234" or "[::]:1234"'),
        ('"1.2.3.4:x"', '"1.2.3.4:x" has no port: write it like "127.0.0.1:1234" or "[::]:1234"'),
        ('"1.2.3.4:0"', '"1.2.3.4:0" has no usable port: write a port from 1 to 65535'),
        ('"1.2.3.4:65536"', '"1.2.3.4:65536" has no usable port: write a port from 1 to 65535'),
        ('"box:80"', f'"box:80" does not start with an IP address: {LITERAL}'),
        ('":80"', f'":80" does not start with an IP address: {LITERAL}'),
        ('"::1:80"', f'"::1:80" does not start with an IP address: {LITERAL}'),
        ('"[1.2.3.4]:80"', f'"[1.2.3.4]:80" does not start with an IP address: {LITERAL}'),
        ('"[fe80::1%e]:80"', f'"[fe80::1%e]:80" does not start with an IP address: {LITERAL}'),
    ],
)  # fmt: skip
def test_what_is_no_address(listen, message):
    assert told(f"admin.listen = {listen}") == {"admin.listen": message}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("drain_timeout = 30", '30 has no unit: write it like "30s" or "30m"'),
        ("drain_timeout = 1.5", '1.5 has no unit: write it like "1.5s" or "1.5m"'),
        (
            "drain_timeout = true",
            'must be a duration: write it like "2s", "5m", "1h30m" or "500ms"',
        ),
        (
            'drain_timeout = "soon"',
            '"soon" is not a duration: write it like "2s", "5m", "1h30m" or "500ms"',
        ),
        ('binary = "bin/x"', '"bin/x" is not an absolute path: write it from the root, like "/…"'),
        ('binary = "/a\\u0000"', "has a zero byte in it: write the path without it"),
        ("binary = 5", 'must be text: write binary = "5"'),
        ("max_held = -1", "is out of range: write at least 0"),
        ('max_held = "5"', "must be a whole number: write it without quotes, like max_held = 1"),
        ("max_held = 1.5", "must be a whole number: write it without quotes, like max_held = 1"),
        ('autostart = "yes"', "must be true or false: write autostart = true"),
        ("env = 5", "must be a table: write [defaults.env]"),
        ("restart = 5", "must be a table: write [defaults.restart]"),
        ("drain_timout = 5", "is not known: did you mean drain_timeout?"),
        ("drain-timeout = 5", "is not known: did you mean drain_timeout?"),
        (
            "ctx_size = 4096",
            "is an option of llama-server: write args = { ctx-size = 4096 }",
        ),
        ('lane = "batch"', "is not available in this version of llamasup: remove it"),
        ('stall_timeout = "auto"', "is not available in this version of llamasup: remove it"),
    ],
)
def test_what_is_no_value_of_a_key(line, message):
    key = line.partition(" ")[0]

    assert told(f"[defaults]\n{line}") == {f"defaults.{key}": message}


def test_an_unknown_key_with_nothing_near_it_lists_what_there_is():
    assert told("xyz = 1") == {
        "xyz": "is not known: write one of daemon, admin, backends, defaults, instances"
    }


@pytest.mark.parametrize("key", ["gateway", "schedule", "group", "jobs", "keys", "memory"])
def test_a_table_of_a_later_version_is_refused(key):
    assert told(f"[{key}]\n") == {key: "is not available in this version of llamasup: remove it"}


def test_what_must_be_there():
    assert told("[instances.chat]\n") == {
        "instances.chat.listen": 'is missing: write listen = "127.0.0.1:1234"',
        "instances.chat.model": 'is missing: write model = "/mnt/models/model.gguf"',
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("parallel = 0", "is out of range: write at least 1"),
        ("parallel = 257", "is out of range: write at most 256"),
        ('kind = "images"', 'must be "chat", "embedding" or "rerank"'),
        ("alias = 5", 'must be a name or a list of names: write it like ["qwen3-8b"]'),
        ('alias = "a,b"', '"a,b" has a comma in it: write a list, like ["qwen3-8b", "chat"]'),
        ('alias = [""]', "'' is not a name: write names like [\"qwen3-8b\"]"),
        ('env = { A = 5 }', 'must be text: write A = "5"'),
        ('restart = { burst = 0 }', "is out of range: write at least 1"),
        ("nice = 20", "is out of range: write at most 19"),
        ("oom_score_adj = -1001", "is out of range: write at least -1000"),
    ],
)  # fmt: skip
def test_what_is_no_value_in_an_instance(line, message):
    text = f'[instances.a]\nlisten = "127.0.0.1:1"\nmodel = "/m"\n{line}'

    assert list(told(text).values()) == [message]


def test_one_alias_may_stand_alone():
    text = '[instances.a]\nlisten = "127.0.0.1:1"\nmodel = "/m"\nalias = "b"'

    assert parsed(text).model.instances["a"].alias == ("b",)


def test_what_is_wrong_is_replaced_and_the_rest_kept():
    result = parsed(
        """
        daemon.log_level = "loud"
        [instances.a]
        listen = "127.0.0.1:1"
        model = "/m"
        nice = "very"
        env = { A = "1", B = 2 }
        [instances.b]
        listen = 5
        """
    )

    assert {dotted(f.key) for f in result.findings} == {
        "daemon.log_level",
        "instances.a.nice",
        "instances.a.env.B",
        "instances.b.listen",
        "instances.b.model",
    }
    assert result.model.instances["a"].env == {"A": "1"}
    assert result.model.instances["a"].nice == 0
    assert result.model.instances["b"].model == "/"


def test_of_an_incomplete_tree_nothing_is_missing():
    result = parse({"instances": {"a": {"nice": 99}}}, complete=False)

    assert [dotted(f.key) for f in result.findings] == ["instances.a.nice"]


def test_a_value_where_tables_belong():
    assert told("instances = 5") == {"instances": "must be a table: write [instances]"}
    assert told("instances.a = 5") == {"instances.a": "must be a table: write [instances.a]"}


def test_every_key_is_described_for_editors():
    schema = json_schema()

    for part in (schema, *schema["$defs"].values()):
        assert part["additionalProperties"] is False
        for name, key in part["properties"].items():
            described = key.get("description") or schema["$defs"][key["$ref"].rpartition("/")[2]]
            assert described, name
            assert "null" not in str(key), name


def test_the_model_of_a_table():
    assert model_at(()) is FileModel
    assert model_at(("instances", "x", "env")) is None
