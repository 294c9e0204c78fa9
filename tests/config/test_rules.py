"""Rules about the whole file and about one whole instance."""

import pytest

from llamasup.config.problem import Level
from llamasup.config.spec import Kind

INSTANCE = """
[instances.{name}]
listen = "{listen}"
model = "/m.gguf"
{more}
"""


def file_of(*instances, top=""):
    text = top + '\n[defaults]\nbinary = "/bin/llama-server"\n'
    for name, listen, *more in instances:
        text += INSTANCE.format(name=name, listen=listen, more="\n".join(more))
    return text


def test_a_file_without_instances(resolved, told):
    assert told(resolved("")) == {
        "instances": "is missing: write [instances.NAME] with listen and model"
    }


UNUSABLE = "is not a usable name: write up to 63 letters, digits, - and _, a letter or digit first"


@pytest.mark.parametrize("name", ['"a.b"', '"a b"', '"../x"', "_a", "-a", '""', '"é"', "a" * 64])
def test_names_that_are_not_usable(resolved, told, name):
    key = name.strip('"') if name in ("_a", "-a") or name == "a" * 64 else name

    assert told(resolved(file_of((name, "127.0.0.1:2000")))) == {f"instances.{key}": UNUSABLE}


@pytest.mark.parametrize("name", ["a", "A-1_b", "9", "a" * 63])
def test_names_that_are_usable(resolved, name):
    assert resolved(file_of((name, "127.0.0.1:2000"))).findings == ()


def test_a_socket_path_that_linux_does_not_take(resolved, told):
    top = f'daemon.runtime_dir = "/{"r" * 93}"\n'  # the path is 107 bytes with a name of one letter
    instances = (("a", "127.0.0.1:2000", 'alias = "x"'), ("bcd", "127.0.0.1:2001"))

    # /rrr…(94) + /a.9999999.sock(15) = 109
    assert told(resolved(file_of(*instances, top=top))) == {
        "instances.a": "makes a socket path that is 2 bytes too long for Linux: "
        "write a shorter name, or a shorter runtime_dir in [daemon]",
        "instances.bcd": "makes a socket path that is 4 bytes too long for Linux: "
        "write a shorter name, or a shorter runtime_dir in [daemon]",
    }


def test_an_admin_socket_that_linux_does_not_take(resolved, told):
    top = f'admin.socket = "/{"s" * 107}"'

    assert told(resolved(file_of(("a", "127.0.0.1:2000"), top=top))) == {
        "admin.socket": "is 1 bytes too long for a socket: write a shorter path"
    }


def test_an_alias_leads_to_one_instance_only(resolved, told):
    text = file_of(
        ("a", "127.0.0.1:2000", 'alias = ["a", "m", "m", "c"]'),
        ("b", "127.0.0.1:2001", 'alias = ["m"]'),
        ("c", "127.0.0.1:2002"),
    )

    assert told(resolved(text)) == {
        "instances.a.alias": '"c" is the name of instances.c already: write another',
        "instances.b.alias": '"m" is an alias of instances.a already: write another',
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("127.0.0.1:2000", "127.0.0.1:2000"),
        ("0.0.0.0:2000", "192.168.1.1:2000"),
        ("192.168.1.1:2000", "0.0.0.0:2000"),
        ("[::]:2000", "127.0.0.1:2000"),
        ("localhost:2000", "127.0.0.1:2000"),
        ("[0:0::1]:2000", "[::1]:2000"),
    ],
)
def test_two_instances_on_one_address(resolved, one, other):
    (finding,) = resolved(file_of(("a", one), ("b", other))).findings

    assert finding.key == ("instances", "b", "listen")
    assert "is taken by instances.a.listen" in finding.message


@pytest.mark.parametrize(
    ("one", "other"),
    [("127.0.0.1:2000", "127.0.0.1:2001"), ("127.0.0.1:2000", "127.0.0.2:2000")],
)
def test_addresses_that_go_together(resolved, one, other):
    assert resolved(file_of(("a", one), ("b", other))).findings == ()


def test_an_address_of_the_admin_api_is_told_once_each(resolved, told):
    text = file_of(
        ("a", "0.0.0.0:2000"), ("b", "127.0.0.1:2000"), top='admin.listen = "127.0.0.1:2000"'
    )

    assert told(resolved(text)) == {
        "instances.a.listen": "0.0.0.0:2000 is taken by admin.listen (127.0.0.1:2000): "
        "write another port",
        "instances.b.listen": "127.0.0.1:2000 is taken by admin.listen (127.0.0.1:2000): "
        "write another port",
    }


def test_a_privileged_port(resolved, told):
    text = file_of(("a", "127.0.0.1:1023"), ("b", "127.0.0.1:1024"))

    assert told(resolved(text, lowest_port=1024)) == {
        "instances.a.listen": "port 1023 needs CAP_NET_BIND_SERVICE: write a port from 1024 up, "
        "or AmbientCapabilities=CAP_NET_BIND_SERVICE in the unit"
    }
    assert resolved(text, lowest_port=1).findings == ()


def test_a_backend_that_is_not_there(resolved, told):
    text = """
        defaults.backend = "vulcan"
        backends.vulkan.binary = "/bin/llama-server"
        [instances.a]
        listen = "127.0.0.1:2000"
        model = "/m"
        backend = "cuda"
    """

    assert told(resolved(text)) == {
        "defaults.backend": 'there is no backend "vulcan": write "vulkan"',
        "instances.a.backend": 'there is no backend "cuda": write [backends.cuda] with its binary',
    }


def test_the_environment_holds_no_options(resolved, told):
    env = """env = { LLAMA_ARG_CTX_SIZE = "1", LLAMA_API_KEY = "k", XDG_CONFIG_HOME = "/",
             "A-B" = "", C = "\\u0000", HSA_OVERRIDE_GFX_VERSION = "10.3.0" }"""
    text = file_of(("a", "127.0.0.1:2000", env.replace("\n", "")))

    assert told(resolved(text)) == {
        "instances.a.env.LLAMA_ARG_CTX_SIZE": "is an option of llama-server: "
        "write ctx-size in args",
        "instances.a.env.LLAMA_API_KEY": "cannot be set here: write api_key_file in the instance",
        "instances.a.env.XDG_CONFIG_HOME": "cannot be set here: llamasup sets it: remove it",
        "instances.a.env.A-B": "is not a name of a variable: write letters, digits and _",
        "instances.a.env.C": "has a zero byte in it: write it without",
    }


@pytest.mark.parametrize(
    ("args", "more", "kind"),
    [
        ("", "", Kind.CHAT),
        ("embeddings = true, pooling = 'mean'", "", Kind.CHAT),
        ("rerank = true", "", Kind.RERANK),
        ("reranking = true", "", Kind.RERANK),
        ("embeddings = true, pooling = 'rank'", "", Kind.RERANK),
        ("embedding = true, pooling = 'cls'", "kind = 'embedding'", Kind.EMBEDDING),
    ],
)
def test_the_kind_of_an_instance(instance, args, more, kind):
    resolved = instance(args, more)

    assert resolved.findings == ()
    assert resolved.settings.instances[0].spec.kind is kind


POOLING_OF_CHAT = (
    'embeddings of a chat model need pooling: write pooling = "mean", "cls" or "last" in args, '
    'or kind = "embedding"'
)


@pytest.mark.parametrize(
    ("args", "more", "key", "message"),
    [
        ("embeddings = true", "", "args", POOLING_OF_CHAT),
        ("embeddings = true, pooling = 'none'", "", "args.pooling", POOLING_OF_CHAT),
        (
            "embeddings = true, pooling = 'none'",
            "kind = 'embedding'",
            "args.pooling",
            'pooling = "none" gives no embeddings: write "mean", "cls" or "last"',
        ),
        (
            "pooling = 'cls'",
            "kind = 'embedding'",
            "kind",
            '"embedding" needs the option: write embeddings = true in args',
        ),
        (
            "",
            "kind = 'rerank'",
            "kind",
            '"rerank" needs the option: write rerank = true in args',
        ),
        (
            "rerank = true",
            "kind = 'chat'",
            "kind",
            '"chat" does not rerank: write kind = "rerank"',
        ),
    ],
)
def test_options_that_do_not_fit_the_kind(instance, told, args, more, key, message):
    assert told(instance(args, more)) == {f"instances.chat.{key}": message}


def test_an_embedding_model_may_name_its_own_pooling(instance):
    (finding,) = instance("embeddings = true", "kind = 'embedding'").findings

    assert (finding.level, finding.message) == (
        Level.WARNING,
        "embeddings without pooling work only if the model names its own: "
        'write pooling = "mean", "cls" or "last" in args',
    )


@pytest.mark.parametrize(
    ("args", "parallel", "message"),
    [
        ("ctx-size = 8192", 1, None),
        ("ctx-size = 32768", 4, None),
        ("ctx-size = 0", 4, None),
        ("ctx-size = 8192, kv-unified = true", 4, None),
        (
            "ctx-size = 8192",
            4,
            "8192 tokens are asked, a slot gets 2048: write ctx-size = 32768 in args, "
            "a smaller parallel or a smaller min_context",
        ),
        (
            "ctx-size = 32768, kv-unified-per-slot = 4096",
            2,
            "8192 tokens are asked, a slot gets 4096: "
            "write kv-unified-per-slot = 8192 or more in args",
        ),
    ],
)
def test_the_context_that_is_asked_of_a_slot(instance, told, args, parallel, message):
    resolved = instance(args, f"parallel = {parallel}\nmin_context = 8192")

    assert told(resolved) == ({} if message is None else {"instances.chat.min_context": message})
