"""What llamasup relies on in the process: command line, loading, log, signals and exit codes."""

import os
import signal

import pytest

from tests.contract.talk import CHAT, LONG, SLOW, read_all

# --- loading ------------------------------------------------------------------------------------


@pytest.fixture
def loading(launch, tmp_path):
    """Return a server that loads for ever: its model is a pipe that nobody writes to."""
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    server = launch(model=str(pipe), ready=False)
    server.wait_until(503)
    yield server
    # Both ends at once, so that a thread that is still in open() gets on and can end.
    os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/props", "/v1/models", "/no/such/path"])
def test_every_path_says_loading_while_the_model_loads(loading, path):
    answer = loading.ask(path)

    assert answer.status == 503
    assert answer.json() == {
        "error": {"message": "Loading model", "type": "unavailable_error", "code": 503}
    }
    assert answer.headers["Connection"] == "close"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_loading_kills(loading, number):
    loading.signal(number)

    assert loading.end() == -number


# --- command line -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        ["-c", "4k"],
        ["--ctx-size", "4096", "--parallel", "2", "--kv-unified", "--metrics", "--slots"],
        ["--gpu-layers", "99", "--flash-attn", "on", "--load-mode", "none"],
        ["-fa", "1", "--cache-type-k", "q8_0", "--jinja", "--no-webui", "--sse-ping-interval", "2"],
        ["--embeddings", "--pooling", "mean", "--rerank", "--cache_ram", "0", "--temp", "0.5"],
        ["--chat-template-kwargs", "{}", "--no-warmup", "--alias", "a,b", "--no-kv-unified"],
    ],
)
def test_a_dry_run_accepts(run, args):
    done = run(*args, "--list-devices")

    assert done.returncode == 0
    assert done.stdout.startswith("Available devices:\n")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--nonsense"], "error: invalid argument: --nonsense"),
        (["--no-mmap"], "error: invalid argument: --no-mmap"),
        (["-dio"], "error: invalid argument: -dio"),
        (["stray"], "error: invalid argument: stray"),
        (["--draft-max", "3"], "the argument has been removed. use --spec-draft-n-max"),
        (["-c", "many"], 'error while handling argument "-c": stoi'),
        (["--temp", "hot"], 'error while handling argument "--temp": stof'),
        (["-fa", "yes"], "error: unknown value for --flash-attn: 'yes'"),
        (["--load-mode", "x"], 'error while handling argument "--load-mode": invalid value'),
        (["--pooling", "x"], 'error while handling argument "--pooling": invalid value'),
        (["-ctk", "q9"], "Unsupported cache type: q9"),
        (["-np", "0"], "error: invalid value for n_parallel"),
        (["--api-key-file", "/none"], "error: failed to open file '/none'"),
        (["--slot-save-path", "/none"], "not a directory: /none"),
    ],
)
def test_a_dry_run_refuses(run, args, text):
    done = run(*args, "--list-devices")

    assert done.returncode == 1
    assert text in done.stderr


def test_a_dry_run_reads_the_environment(run):
    done = run("--list-devices", LLAMA_ARG_CTX_SIZE="many")

    assert done.returncode == 1
    assert 'error while handling environment variable "LLAMA_ARG_CTX_SIZE": stoi' in done.stderr


def test_help_lists_options_in_a_form_that_can_be_parsed(run):
    done = run("--help")

    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert "----- common params -----" in lines
    assert any(line.startswith("-c,    --ctx-size N ") for line in lines)
    assert any(line.startswith("--embedding, --embeddings ") for line in lines)
    assert any(line.startswith("-kvu,  --kv-unified, -no-kvu, --no-kv-unified") for line in lines)
    assert " " * 40 + "(env: LLAMA_ARG_CTX_SIZE)" in lines


def test_version_goes_to_stderr(run):
    done = run("--version")

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("version: ")


# --- ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "failed to open GGUF file '{}' (No such file or directory)"),
        (b"", "failed to read magic"),
        (b"nope, no model", "invalid magic characters: 'nope', expected 'GGUF'"),
    ],
)
def test_a_bad_model_is_exit_code_1_and_named(launch, tmp_path, content, text):
    model = tmp_path / "bad.gguf"
    if content is not None:
        model.write_bytes(content)

    server = launch(model=str(model), ready=False)

    assert server.end() == 1
    assert text.format(model) in server.log
    assert "exiting due to model loading error" in server.log


def test_a_socket_file_that_is_there_already_is_exit_code_1(launch, tmp_path):
    first = launch()

    second = launch("--host", first.socket_path, ready=False)

    assert second.end() == 1
    assert "couldn't bind HTTP server socket" in second.log
    assert first.ask("/health").status == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_with_0_and_leaves_its_socket_file(launch, number):
    server = launch()
    server.wait_for(lambda: "listening on" in server.log, "the handlers of signals")
    server.ask("/v1/chat/completions", CHAT)

    server.signal(number)

    assert server.end() == 0
    assert os.path.exists(server.socket_path)


# After the second SIGTERM. The real one calls exit() with threads running: at times that aborts.
AT_ONCE = {1, -signal.SIGABRT}


def in_flight(launch, **more: object):
    """Return a server with one slot and the connection of the long request that it works on."""
    options = ["--sse-ping-interval", "1", "--parallel", "1", "--ctx-size", "32768"]
    server = launch(*options, **SLOW)
    connection = server.open("/v1/chat/completions", LONG | more)
    server.wait_for(lambda: server.ask("/slots").json()[0]["is_processing"], "a request in flight")
    return server, connection


def terminated_in_flight(launch, **more: object):
    """Return a server that has acted on SIGTERM, and the connection of its request.

    The real one takes a lock in the handler of the signal: one time in ten, with a model as fast as
    this, the thread that is interrupted holds it, and nothing happens until a second SIGTERM.
    """
    for _attempt in range(6):
        server, connection = in_flight(launch, **more)
        server.signal(signal.SIGTERM)
        if server.is_closed_within(5.0):
            return server, connection
        connection.close()
        server.signal(signal.SIGTERM)
        assert server.end() in AT_ONCE
    return pytest.fail("SIGTERM did nothing, six times")


def test_sigterm_cuts_a_stream_with_a_ping_and_no_last_chunk(launch):
    server, connection = terminated_in_flight(launch, stream=True)

    with connection:
        everything = read_all(connection)

    assert b"data: " in everything
    assert b"[DONE]" not in everything
    assert b'"finish_reason":"' not in everything
    assert server.end() == 0


def test_sigterm_waits_for_a_client_that_gets_no_stream(launch):
    server, connection = terminated_in_flight(launch)

    with connection:
        assert server.process.poll() is None

    assert server.end() == 0


def test_a_second_sigterm_ends_it_at_once(launch):
    server, connection = in_flight(launch)

    with connection:
        server.signal(signal.SIGTERM)
        server.wait_until_taken(signal.SIGTERM)
        server.signal(signal.SIGTERM)
        assert server.end() in AT_ONCE

    assert "Received second interrupt, terminating immediately." in server.log


def test_the_log_tells_the_phases_in_order(launch, models):
    server = launch("--parallel", "2", "--ctx-size", "1024", "--no-kv-unified")
    server.wait_for(lambda: "listening on" in server.log, "the last line of the start")

    marks = [
        f"loading model '{models.chat}'",
        "initializing, n_slots = 2, n_ctx_slot = 512, kv_unified = 'false'",
        "model loaded",
        f"listening on unix://{server.socket_path}",
    ]
    positions = [server.log.find(mark) for mark in marks]
    assert -1 not in positions
    assert positions == sorted(positions)
