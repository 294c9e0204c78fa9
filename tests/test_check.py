"""The check as a whole: all problems at once; binaries that answer, refuse, hang or are missing."""

import asyncio
import os

import pytest

from llamasup.check import Checked, Problem, check, exit_code, refusal, render
from llamasup.child.tool import ToolResult
from llamasup.config.args import Arg
from llamasup.config.problem import Level
from tests.config.conftest import HELP

OK = ToolResult(0, "Available devices:\n  (none)\n", "")


class FakeBinaries:
    """Stands in for ``tool.run``: a help for every binary, and refusals by a word of the line."""

    def __init__(self, helps=None, refusals=None, settle=0):
        self.helps = helps or {}
        self.refusals = refusals or {}
        self.settle = settle  # turns of the loop that each answer takes
        self.calls = []
        self.envs = []
        self.running = 0
        self.peak = 0

    async def __call__(self, argv, env, timeout):
        self.calls.append(tuple(argv))
        self.envs.append(env)
        self.running += 1
        self.peak = max(self.peak, self.running)
        for _turn in range(self.settle):
            await asyncio.sleep(0)
        self.running -= 1
        if argv[1:] == ("--help",):
            return self.helps.get(argv[0], ToolResult(0, HELP, ""))
        assert argv[-1] == "--list-devices"
        return next((r for word, r in self.refusals.items() if word in argv), OK)

    def dry_runs(self):
        return [argv for argv in self.calls if argv[-1] == "--list-devices"]


@pytest.fixture
def write(tmp_path):
    """Write the main file, and more beside it in conf.d; return its path."""

    def write_files(text, **more):
        (tmp_path / "main.toml").write_text(text)
        (tmp_path / "conf.d").mkdir(exist_ok=True)
        for name, other in more.items():
            (tmp_path / "conf.d" / f"{name}.toml").write_text(other)
        return str(tmp_path / "main.toml")

    return write_files


async def lines_of(path, run=None, environ=None, deep=True):
    """Return the rendered problems, with the folder left out."""
    checked = await check(path, environ=environ or {}, deep=deep, run=run or FakeBinaries())
    return render(checked.problems).replace(f"{os.path.dirname(path)}/", "").splitlines()


def instance(name, port, more=""):
    return f'[instances.{name}]\nlisten = "127.0.0.1:{port}"\nmodel = "/m"\n{more}\n'


DEFAULTS = '[defaults]\nbinary = "/b"\n'


BROKEN = """
[daemon]
timezone = "Mars/Olympus"
log_dir = "logs"
colour = true

[gateway]
listen = "0.0.0.0:8080"

[backends.rocm]
binary = "bin/llama-server"
env = { HSA_OVERRIDE_GFX_VERSION = 10.3 }

[defaults]
backend = "rocm"
drain_timeout = 300
args = { no-mmap = true, ctx-size = "4k" }

[instances.chat]
listen = "0.0.0.0:1234"
model = "${HOME}/m.gguf"
api_key_file = "${NOT_THERE}/key"
args = { port = 8080 }

[instances.embed]
listen = "127.0.0.1:1234"
model = "/m"
alias = "chat"
binary = "/b"
args = { embeddings = true, threads = 2 }
"""


ALL_PROBLEMS = """\
conf.d/more.toml: instances.embed.alias: stands in main.toml too: write it in one of the two
main.toml: instances.chat.model: ${…} is replaced in api_key_file and token_file only: write the value itself
main.toml: instances.chat.api_key_file: the environment has no NOT_THERE: set it, or write the path itself
main.toml: daemon.log_dir: "logs" is not an absolute path: write it from the root, like "/…"
main.toml: daemon.colour: is not known: write one of timezone, runtime_dir, state_dir, log_dir, log_level
main.toml: backends.rocm.binary: "bin/llama-server" is not an absolute path: write it from the root, like "/…"
main.toml: backends.rocm.env.HSA_OVERRIDE_GFX_VERSION: must be text: write HSA_OVERRIDE_GFX_VERSION = "10.3"
main.toml: defaults.drain_timeout: 300 has no unit: write it like "300s" or "300m"
main.toml: gateway: is not available in this version of llamasup: remove it
main.toml: daemon.timezone: "Mars/Olympus" is not a time zone of this machine: write it like "Europe/Paris"
main.toml: instances.embed.alias: "chat" is the name of instances.chat already: write another
main.toml: instances.embed.listen: 127.0.0.1:1234 is taken by instances.chat.listen (0.0.0.0:1234): write another port
main.toml: defaults.args.ctx-size: "4k" is not a number: write ctx-size = 4096
main.toml: defaults.args.no-mmap: is no option of this llama-server any more: write load-mode = "none"
main.toml: instances.chat.args.port: is set by llamasup: write listen = "127.0.0.1:1234" in the instance
main.toml: instances.embed.args: embeddings of a chat model need pooling: write pooling = "mean", "cls" or "last" in args, or kind = "embedding"
"""  # noqa: E501 - the lines are as the user sees them


async def test_all_problems_of_a_broken_file_at_once(write):
    path = write(BROKEN, more='[instances.embed]\nnice = 1\nalias = "x"\n')

    assert await lines_of(path) == ALL_PROBLEMS.splitlines()


async def test_what_two_files_say_is_told_by_the_file(write):
    path = write(DEFAULTS + instance("a", 2000), b=instance("b", 2000, "nice = 99"))

    assert await lines_of(path) == [
        "conf.d/b.toml: instances.b.nice: is out of range: write at most 19",
        "conf.d/b.toml: instances.b.listen: 127.0.0.1:2000 is taken by instances.a.listen "
        "(127.0.0.1:2000): write another port",
    ]


async def test_a_good_file_gives_settings(write):
    path = write(DEFAULTS + instance("a", 2000))

    checked = await check(path, environ={}, run=FakeBinaries())

    assert checked.problems == ()
    assert [i.name for i in checked.settings.instances] == ["a"]
    assert checked.settings.files == (path,)
    assert exit_code(checked) == 0


async def test_a_warning_gives_settings_too(write):
    path = write(DEFAULTS + instance("a", 2000, "args = { defrag-thold = 1 }"))

    checked = await check(path, environ={}, run=FakeBinaries())

    assert [p.level for p in checked.problems] == [Level.WARNING]
    assert exit_code(checked) == 0


def test_an_unusable_file_ends_with_78():
    assert exit_code(Checked(None, (Problem("/f", "", "x"),))) == 78


async def test_a_syntax_error_hides_what_only_seems_to_be_missing(write):
    path = write("[defaults\n", b=instance("b", 2000, "nice = 99") + "[instances.c]\n")

    assert await lines_of(path) == [
        "main.toml: is not TOML: expected ']' at the end of a table declaration "
        "(at line 1, column 10)",
        "conf.d/b.toml: instances.b.nice: is out of range: write at most 19",
    ]


async def test_a_wrong_binary_is_not_missing_as_well(write):
    path = write('[defaults]\nbinary = "llama-server"\n' + instance("a", 2000))
    run = FakeBinaries({"/": ToolResult(None, "", "", error="cannot start /: permission denied")})

    assert await lines_of(path, run) == [
        'main.toml: defaults.binary: "llama-server" is not an absolute path: '
        'write it from the root, like "/…"'
    ]


async def test_a_wrong_backend_is_not_missing_as_well(write):
    path = write('[defaults]\nbackend = 5\n[backends.x]\nbinary = "/b"\n' + instance("a", 2000))

    assert await lines_of(path) == [
        'main.toml: defaults.backend: must be text: write backend = "5"'
    ]


async def test_a_wrong_instance_is_not_missing_as_well(write):
    path = write(DEFAULTS + '[instances.a]\nlisten = "127.0.0.1:2000"\n')

    assert await lines_of(path) == [
        'main.toml: instances.a.model: is missing: write model = "/mnt/models/model.gguf"'
    ]


async def test_an_instance_that_is_no_table_is_not_missing_as_well(write):
    path = write(DEFAULTS + "[instances]\na = 5\n")

    assert await lines_of(path) == ["main.toml: instances.a: must be a table: write [instances.a]"]


async def test_one_value_is_complained_of_once(write):
    path = write(DEFAULTS + instance("a", 2000, 'args = { ctx-size = "${SIZE}" }'))

    assert await lines_of(path) == [
        "main.toml: instances.a.args.ctx-size: ${…} is replaced in api_key_file and token_file "
        "only: write the value itself"
    ]


async def test_files_that_do_not_answer_are_a_problem_and_no_freeze(write):
    path = write(DEFAULTS + instance("a", 2000))

    checked = await check(path, environ={}, deep=False, files_timeout=0)

    text = "cannot read it: no answer within 0s: is its file system there?"
    assert checked == Checked(None, (Problem(path, "", text),))


async def test_secrets_are_read(write, tmp_path):
    for name in ("key", "token"):
        (tmp_path / name).write_text(f"secret-{name}\n")
        (tmp_path / name).chmod(0o600)
    text = 'admin.token_file = "${DIR}/token"\n' + DEFAULTS
    path = write(text + instance("a", 2000, 'api_key_file = "${DIR}/key"'))

    checked = await check(path, environ={"DIR": str(tmp_path)}, deep=False)

    assert checked.problems == ()
    assert checked.settings.admin.token == "secret-token"
    assert checked.settings.instances[0].spec.api_key == "secret-key"
    assert f"{tmp_path}/key" in checked.settings.instances[0].spec.argv


async def test_a_secret_that_cannot_be_read(write):
    path = write(DEFAULTS + instance("a", 2000, 'api_key_file = "/none/key"'))

    assert await lines_of(path) == [
        "main.toml: instances.a.api_key_file: cannot read /none/key: there is no such file"
    ]


async def test_a_shallow_check_runs_nothing(write):
    run = FakeBinaries()

    await check(write(DEFAULTS + instance("a", 2000)), environ={}, deep=False, run=run)

    assert run.calls == []


async def test_each_binary_is_asked_once_and_each_instance_tried(write):
    run = FakeBinaries()
    text = DEFAULTS + instance("a", 2000) + instance("b", 2001)
    path = write(text + instance("c", 2002, 'binary = "/other"'))

    checked = await check(path, environ={}, run=run)

    assert sorted(argv for argv in run.calls if argv[1] == "--help") == [
        ("/b", "--help"),
        ("/other", "--help"),
    ]
    assert sorted(run.dry_runs()) == sorted(
        (*i.spec.argv, "--list-devices") for i in checked.settings.instances
    )


async def test_a_few_binaries_at_a_time(write):
    run = FakeBinaries(settle=5)
    many = "".join(instance(f"i{n}", 2000 + n, f'binary = "/b{n}"') for n in range(6))

    await check(write(DEFAULTS + many), environ={}, run=run)

    assert run.peak == 4


async def test_binaries_run_in_the_environment_of_a_launch(write):
    run = FakeBinaries()
    path = write(DEFAULTS + instance("a", 2000, 'env = { HSA = "1" }'))

    await check(path, environ={"LLAMA_ARG_MODEL": "x", "NOTIFY_SOCKET": "y", "HOME": "/h"}, run=run)

    assert len(run.envs) == 2
    for env in run.envs:
        assert (env["HSA"], env["HOME"]) == ("1", "/h")
        assert not {"LLAMA_ARG_MODEL", "NOTIFY_SOCKET"} & env.keys()


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (
            ToolResult(None, "", "", error="cannot start /b: no such file"),
            "cannot start /b: no such file: write the path of llama-server",
        ),
        (
            ToolResult(0, "usage: true\n", ""),
            "/b is no llama-server (its --help has no --model): write its path",
        ),
        (
            ToolResult(127, "", "/b: error while loading shared libraries: libx.so\n"),
            "/b --help fails: /b: error while loading shared libraries: libx.so: "
            "repair it, or write another path",
        ),
        (
            ToolResult(None, "", "", timed_out=True, error="no end after 5 s"),
            "warning: /b --help: no end after 5 s: its options are not checked",
        ),
        (
            ToolResult(None, "", "", error="killed by signal 7"),
            "warning: /b --help: killed by signal 7: its options are not checked",
        ),
    ],
)
async def test_a_binary_that_gives_no_help(write, result, line):
    run = FakeBinaries({"/b": result})
    path = write(DEFAULTS + instance("a", 2000) + instance("b", 2001))

    assert await lines_of(path, run) == [f"main.toml: defaults.binary: {line}"]
    assert run.dry_runs() == []
    assert (await check(path, environ={}, run=run)).settings is None or "warning" in line


async def test_the_key_that_names_the_binary_is_blamed(write):
    none = ToolResult(None, "", "", error="cannot start it: no such file")
    run = FakeBinaries({"/x": none, "/y": none})
    text = '[defaults]\nbackend = "x"\n[backends.x]\nbinary = "/x"\n'
    path = write(text + instance("a", 2000) + instance("b", 2001, 'binary = "/y"'))

    assert sorted(line.split(": ")[1] for line in await lines_of(path, run)) == [
        "backends.x.binary",
        "instances.b.binary",
    ]


async def test_refusals_are_told_until_the_rest_is_accepted(write):
    """A binary ends at its first fault: what it refused is left out, and it is asked again."""
    said = 'error while handling argument "--{}": invalid value\n\nusage:\n--{} {{a,b}}   text\n'
    run = FakeBinaries(
        refusals={
            "--pooling": ToolResult(1, "", said.format("pooling", "pooling")),
            "--load-mode": ToolResult(1, "", said.format("load-mode", "load-mode")),
        }
    )
    text = DEFAULTS + 'args.load-mode = "x"\n'
    path = write(text + instance("a", 2000, 'args = { pooling = "x", no-mmap = true }'))

    assert await lines_of(path, run) == [
        "main.toml: instances.a.args.no-mmap: is no option of this llama-server any more: "
        'write load-mode = "none"',
        "main.toml: instances.a.args.pooling: llama-server refuses it: invalid value: "
        "write one of a, b",
        "main.toml: defaults.args.load-mode: llama-server refuses it: invalid value: "
        "write one of a, b",
    ]
    assert not any("--no-mmap" in argv for argv in run.dry_runs())


@pytest.mark.parametrize(
    "result",
    [
        ToolResult(None, "", "", timed_out=True, error="no end after 10 s"),
        ToolResult(None, "", "", error="killed by signal 11"),
    ],
)
async def test_a_dry_run_without_an_answer_is_a_warning(write, result):
    run = FakeBinaries(refusals={"--model": result})
    path = write(DEFAULTS + instance("a", 2000))

    assert await lines_of(path, run) == [
        f"main.toml: instances.a: warning: /b could not try its options: {result.error}"
    ]


@pytest.mark.parametrize(
    ("stderr", "key", "message"),
    [
        (
            "error: invalid argument: --threads\n",
            "instances.chat.args.threads",
            "it is no option of this build: remove it",
        ),
        (
            'error while handling argument "--threads": stoi\n',
            "instances.chat.args.threads",
            "it is not a number: write one",
        ),
        (
            "error while handling argument \"--threads\": error: unknown value: 'yes'\n\nusage:\n"
            "-t,    --threads [on|off|auto]       text\n",
            "instances.chat.args.threads",
            "unknown value: 'yes': write one of on, off, auto",
        ),
        (
            'error while handling argument "--threads": Unsupported type\n\nusage:\n'
            "-t, --threads TYPE       text\n        allowed values: f32, f16\n",
            "instances.chat.args.threads",
            "Unsupported type: write one of f32, f16",
        ),
        (
            "error while handling argument \"--api-key-file\": error: failed to open file '/k'\n",
            "instances.chat.api_key_file",
            "failed to open file '/k': correct it",
        ),
        ("first\nthe last line\n\n", "instances.chat.args", "the last line: correct it"),
        ("", "instances.chat.args", "it says nothing: correct it"),
    ],
)
def test_the_useful_line_of_a_refusal(stderr, key, message):
    arg = Arg("threads", 1, ("instances", "chat", "args", "threads"))

    finding = refusal(stderr, "chat", [arg])

    assert (".".join(finding.key), finding.message) == (key, f"llama-server refuses it: {message}")


@pytest.mark.real
async def test_the_real_server_says_what_it_does_not_take(write):
    binary = os.environ["LLAMASUP_LLAMA_SERVER"]
    args = """args = { no-mmap = true, n-gpu-layers = 99, flash-attn = "yes", cache-type-k = "zz",
              chat-template-kwargs = "{", ctx-size = "4k", ctx-sise = 1 }""".replace("\n", "")
    path = write(f'[defaults]\nbinary = "{binary}"\n' + instance("a", 2000, args))

    checked = await check(path, environ=os.environ)
    lines = render(checked.problems).replace(f"{path}: instances.a.args.", "").splitlines()

    assert lines[:3] == [
        'ctx-size: "4k" is not a number: write ctx-size = 4096',
        'no-mmap: is no option of this llama-server any more: write load-mode = "none"',
        "ctx-sise: is not an option of this llama-server: did you mean ctx-size?",
    ]
    assert [line.split(": ")[:2] for line in lines[3:]] == [
        ["cache-type-k", "llama-server refuses it"],
        ["chat-template-kwargs", "llama-server refuses it"],
        ["flash-attn", "llama-server refuses it"],
    ]


@pytest.mark.real
async def test_a_model_that_hangs_does_not_matter(write, tmp_path):
    """The model is a FIFO: whoever opens it waits for ever."""
    os.mkfifo(tmp_path / "model.gguf")
    binary = os.environ["LLAMASUP_LLAMA_SERVER"]
    text = instance("a", 2000).replace('"/m"', f'"{tmp_path}/model.gguf"')
    path = write(f'[defaults]\nbinary = "{binary}"\n{text}')

    async with asyncio.timeout(20):
        checked = await check(path, environ=os.environ)

    assert checked.problems == ()
