"""The tiny models: the same bytes each time, small, and good for the real server.

That chat, embeddings and rerank work with the real server is shown by tests/contract.
"""

import hashlib
import subprocess
import sys

import pytest

from llamasup.fake.gguf_model import Shape, write_chat_model, write_rerank_model
from tests.fakes.servers import ROOT


def digest(path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("write", [write_chat_model, write_rerank_model])
def test_the_same_bytes_each_time_and_below_a_megabyte(tmp_path, write):
    first, second = tmp_path / "a.gguf", tmp_path / "b.gguf"

    write(first)
    write(second)

    assert digest(first) == digest(second)
    assert first.stat().st_size < 1 << 20


def test_the_command_writes_the_same_as_the_function(tmp_path):
    command = [sys.executable, str(ROOT / "scripts" / "make-tiny-gguf"), "--layers", "3"]
    subprocess.run([*command, str(tmp_path / "a.gguf")], check=True)
    write_chat_model(tmp_path / "b.gguf", Shape(layers=3))

    assert digest(tmp_path / "a.gguf") == digest(tmp_path / "b.gguf")
