"""The check as a whole: all problems at once."""

from llamasup.check import Checked, Problem, check, exit_code
from llamasup.child.tool import ToolResult
from llamasup.config.problem import Level
from tests.fakes.binaries import DEFAULTS, FakeBinaries, instance, lines_of

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
