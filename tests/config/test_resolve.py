"""From the file's text to the daemon's values: who wins, what is merged."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamasup.config.file import substitute
from llamasup.config.options import parse_help
from llamasup.config.problem import Level
from llamasup.config.resolve import Outside, resolve
from llamasup.config.schema import parse
from llamasup.config.spec import (
    Address,
    AdminConf,
    InstanceConf,
    Kind,
    Policy,
    RestartPolicy,
    Settings,
    Spec,
)
from tests.config.conftest import HELP

FULL = """
[daemon]
timezone = "Europe/Paris"
runtime_dir = "/run/other/"
log_level = "debug"

[admin]
listen = "127.0.0.1:9110"

[backends.rocm]
binary = "/rocm/llama-server"
env = { HSA = "1", SAME = "backend" }
args = { gpu-layers = 99, threads = 1 }

[backends.cpu]
binary = "/cpu/llama-server"

[defaults]
backend = "rocm"
drain_timeout = "1m"
max_held = 9
env = { SAME = "defaults" }
args = { flash-attn = "on", threads = 2 }
restart = { delay = "2s", burst = 3 }

[instances.chat]
listen = "0.0.0.0:1234"
model = "/m.gguf"
alias = ["b", "a", "chat"]
parallel = 2
nice = 5
oom_score_adj = 100
max_held = 1
env = { SAME = "instance" }
args = { threads = 3, ctx-size = 8192 }
restart = { burst = 4 }
"""


def test_a_whole_file(resolved):
    result = resolved(FULL, api_keys={"chat": "sk-1"}, token="t", files=("/f",))

    assert result.findings == ()
    assert result.settings == Settings(
        runtime_dir="/run/other",
        state_dir="/var/lib/llamasup",
        log_dir=None,
        log_level="debug",
        timezone="Europe/Paris",
        admin=AdminConf("/run/other/admin.sock", Address("127.0.0.1", 9110), "t"),
        instances=(
            InstanceConf(
                name="chat",
                listen=Address("0.0.0.0", 1234),
                spec=Spec(
                    name="chat",
                    argv=(
                        "/rocm/llama-server",
                        *("--model", "/m.gguf", "--alias", "chat,b,a", "--parallel", "2"),
                        *("--slots", "--cache-ram", "0", "--ctx-size", "8192"),
                        *("--flash-attn", "on", "--gpu-layers", "99", "--load-mode", "none"),
                        *("--metrics", "--sse-ping-interval", "5", "--threads", "3"),
                    ),
                    env=(("HSA", "1"), ("SAME", "instance")),
                    kind=Kind.CHAT,
                    model="/m.gguf",
                    aliases=("chat", "b", "a"),
                    parallel=2,
                    slot_context=4096,
                    nice=5,
                    oom_score_adj=100,
                    api_key="sk-1",
                ),
                policy=Policy(
                    drain_timeout=60.0,
                    max_held=1,
                    restart=RestartPolicy(delay=2.0, burst=4),
                ),
            ),
        ),
        files=("/f",),
    )


def test_the_defaults_are_those_of_the_contract(resolved):
    text = """
        defaults.binary = "/b"
        [instances.a]
        listen = "127.0.0.1:2000"
        model = "/m"
    """

    settings = resolved(text).settings

    assert settings.admin == AdminConf("/run/llamasup/admin.sock")
    assert settings.instances[0].policy == Policy()


def test_the_key_file_is_handed_on(instance):
    argv = instance("", 'api_key_file = "/k"').settings.instances[0].spec.argv

    assert argv[argv.index("--api-key-file") + 1] == "/k"


def binary_of(resolved, *lines):
    top = "\n".join(lines)
    text = f'{top}\n[instances.a]\nlisten = "127.0.0.1:2000"\nmodel = "/m"\n'
    result = resolved(text)
    return [i.spec.binary for i in result.settings.instances], result


def test_the_nearest_binary_wins(resolved):
    backend = 'backends.x.binary = "/x"'
    chosen = 'defaults.backend = "x"'
    default = 'defaults.binary = "/d"'

    assert binary_of(resolved, backend, chosen)[0] == ["/x"]
    assert binary_of(resolved, default)[0] == ["/d"]
    binaries, result = binary_of(resolved, backend, chosen, default)
    assert binaries == ["/d"]
    assert [(f.key, f.level, f.message) for f in result.findings] == [
        (
            ("backends", "x", "binary"),
            Level.WARNING,
            "is hidden by defaults.binary, which is nearer: remove one of them",
        )
    ]


def test_an_instance_without_a_binary(resolved, told):
    nothing = binary_of(resolved)[1]
    unused = binary_of(resolved, 'backends.x.binary = "/x"')[1]
    empty = binary_of(resolved, "backends.x.args = {}", 'defaults.backend = "x"')[1]

    assert told(nothing) == {
        "instances.a.binary": 'is missing: write binary = "/…/llama-server" in [defaults]'
    }
    assert told(unused) == {"instances.a.backend": 'is missing: write backend = "x" in [defaults]'}
    assert told(empty) == {
        "instances.a.binary": 'is missing: write binary = "/…/llama-server" in [backends.x]'
    }


def test_a_fault_in_the_defaults_is_told_once(resolved, told, known):
    text = """
        defaults.binary = "/bin/llama-server"
        defaults.args = { ctx-size = "4k" }
        [instances.a]
        listen = "127.0.0.1:2000"
        model = "/m"
        [instances.b]
        listen = "127.0.0.1:2001"
        model = "/m"
    """

    result = resolved(text, known)

    assert [f.key for f in result.findings] == [("defaults", "args", "ctx-size")]


def test_policies_that_make_no_sense(resolved, told):
    text = """
        defaults.binary = "/b"
        defaults.kill_timeout = "0s"
        [instances.a]
        listen = "127.0.0.1:2000"
        model = "/m"
        load_timeout = "0s"
        drain_timeout = "0s"
        restart = { delay = "10m", window = "0s" }
    """

    assert told(resolved(text)) == {
        "instances.a.restart.max_delay": "is less than delay: write at least that",
        "instances.a.restart.window": 'must be more than "0s": write "10m"',
        "instances.a.load_timeout": 'must be more than "0s": write "1m"',
        "defaults.kill_timeout": 'must be more than "0s": write "1m"',
    }


def test_secrets_are_not_in_the_text_of_the_settings(resolved):
    result = resolved(FULL, api_keys={"chat": "sk-1"}, token="t0ken")

    assert "sk-1" not in repr(result)
    assert "t0ken" not in repr(result)


def test_a_command_line_less_some_keys(instance):
    (launch,) = instance("ctx-size = 4096, threads = 2").launches

    argv = launch.argv_without({("instances", "chat", "args", "threads")})

    assert argv == tuple(w for w in launch.conf.spec.argv if w not in ("--threads", "2"))


TEXTS = st.sampled_from(
    ["", "/m", "rel", "a", "b", "5m", "${X}", "127.0.0.1:2000", "[::]:2000", "chat", "4k", "\0"]
)
SCALARS = TEXTS | st.integers(-2, 70000) | st.booleans() | st.floats() | st.dates()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OPTIONS = st.dictionaries(
    st.sampled_from(
        [
            "ctx-size",
            "ctx_size",
            "c",
            "threads",
            "pooling",
            "embeddings",
            "rerank",
            "kv-unified",
            "no-kv-unified",
            "warmup",
            "no-mmap",
            "draft",
            "port",
            "slots",
            "zzz",
            "lora",
            "control-vector-layer-range",
            "metrics",
            "--x",
        ]
    ),
    VALUES,
)
LAUNCH = {"binary": VALUES, "env": VALUES, "args": OPTIONS | VALUES, "backend": VALUES}
PART = st.fixed_dictionaries(
    {},
    optional={
        **LAUNCH,
        **dict.fromkeys(
            [
                "listen",
                "model",
                "alias",
                "parallel",
                "kind",
                "min_context",
                "nice",
                "api_key_file",
                "restart",
                "max_held",
                "lane",
                "drain_timeout",
                "socket",
                "timezone",
                "runtime_dir",
                "token_file",
                "unheard_of",
            ],
            VALUES,
        ),
    },
)
TREES = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(["daemon", "admin", "defaults", "gateway"], PART | VALUES),
        **dict.fromkeys(["backends", "instances"], st.dictionaries(TEXTS, PART | VALUES) | VALUES),
    },
)


# No deadline: the machine may be busy.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TREES, st.booleans())
def test_no_file_whatever_makes_the_check_itself_fail(tree, with_help):
    """Everything that TOML can say ends in findings or in settings, never in an exception."""
    substitute(tree, {"X": "/x"})
    parsed = parse(tree)
    known = {"/m": parse_help(HELP), "/": parse_help(HELP)} if with_help else {}

    result = resolve(parsed.model, Outside(), known)

    for launch in result.launches:
        assert all(isinstance(word, str) for word in launch.conf.spec.argv)
        assert launch.argv_without(set()) == launch.conf.spec.argv
