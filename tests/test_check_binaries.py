"""The check of binaries that answer, refuse, hang or are missing."""

import asyncio
import os

import pytest

from llamasup.check import check, refusal, render
from llamasup.child.tool import ToolResult
from llamasup.config.args import Arg
from tests.fakes.binaries import DEFAULTS, FakeBinaries, instance, lines_of


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
