"""What an end means, line by line as the real llama-server prints it."""

import pytest

from llamasup.core.exits import classify, signal_name
from llamasup.core.model import Cause, Exit

NOISE = "0.00.012.345 I srv  load_model: loading model '/m.gguf'"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("error: invalid argument: --no-mmap", "error: invalid argument: --no-mmap"),
        ('error while handling argument "-c": stoi', 'error while handling argument "-c": stoi'),
        (
            'error while handling environment variable "LLAMA_ARG_FIT": x',
            'error while handling environment variable "LLAMA_ARG_FIT": x',
        ),
        ("error: the argument has been removed: -x", "error: the argument has been removed: -x"),
        ("E llama_init: n_seq_max must be <= 256", "n_seq_max must be <= 256"),
        ("error: invalid device: CUDA0", "invalid device: CUDA0"),
    ],
)
def test_what_no_retry_mends_is_a_config_error(line: str, shown: str) -> None:
    end = classify(1, None, [NOISE, line, "exiting"])

    assert end == Exit(1, None, Cause.CONFIG, f"exit code 1: {shown}")


@pytest.mark.parametrize(
    "line",
    [
        "failed to open GGUF file '/m.gguf' (No such file or directory)",
        "failed to read magic",
        "invalid magic characters: 'abcd', expected 'GGUF'",
        "failed to read key-value pairs",
        "tensor 'x' data is not within the file bounds, model is corrupted or incomplete",
        "unknown model architecture: 'x'",
        "couldn't bind HTTP server socket, hostname: /x.sock, port: 0",
        "failed to allocate buffer of size 12345",
        "read error: Input/output error",
        "GGML_ASSERT(n_outputs >= 1) failed",
        "CUDA error: out of memory",
        "error: something new",
    ],
)
def test_other_telling_lines_are_shown_and_tried_again(line: str) -> None:
    end = classify(1, None, [line, NOISE])

    assert end == Exit(1, None, Cause.CRASH, f"exit code 1: {line}")


def test_the_last_telling_line_wins() -> None:
    end = classify(1, None, ["error: first", "error: second"])

    assert end.detail == "exit code 1: error: second"


def test_an_unasked_exit_0_is_a_crash_and_its_log_explains_nothing() -> None:
    assert classify(0, None, ["error: old news"]) == Exit(0, None, Cause.CRASH, "exit code 0")


def test_a_signal_is_named_and_never_a_config_error() -> None:
    end = classify(None, 11, ["error: invalid argument: --x"])

    assert end.cause is Cause.CRASH
    assert end.detail.startswith("killed by SIGSEGV")


def test_a_signal_without_a_name_is_a_number() -> None:
    assert signal_name(63) == "signal 63"
