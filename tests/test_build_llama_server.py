"""scripts/build-llama-server --find: where a llama-server is looked for, in order."""

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "build-llama-server"
VERSION = re.search(r'^VERSION = "(.*)"$', SCRIPT.read_text(), re.MULTILINE)[1]  # type: ignore[index]


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def find(tmp_path):
    def find(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        clean = {"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        return subprocess.run(
            [sys.executable, str(SCRIPT), *(arguments or ["--find"])],
            env=clean | env,
            capture_output=True,
            text=True,
            check=False,
        )

    return find


def test_the_variable_comes_before_path_and_path_before_the_cache(find, tmp_path):
    name = f"llama-server-{VERSION}-{platform.machine()}"
    cached = program(tmp_path / "cache" / "llamasup" / name / "llama-server")
    assert find().stdout == f"{cached}\n"

    on_path = program(tmp_path / "bin" / "llama-server")
    assert find().stdout == f"{on_path}\n"

    assert find(LLAMASUP_LLAMA_SERVER="/opt/x").stdout == "/opt/x\n"


def test_nothing_found_is_exit_code_1_and_says_what_to_do(find):
    done = find()

    assert (done.returncode, done.stdout) == (1, "")
    assert "scripts/build-llama-server builds one" in done.stderr


def test_a_build_that_is_there_is_not_built_again(find, tmp_path):
    name = f"llama-server-{VERSION}-{platform.machine()}"
    cached = program(tmp_path / "cache" / "llamasup" / name / "llama-server")

    done = find("--jobs", "1")

    assert (done.returncode, done.stdout) == (0, f"{cached}\n")


def test_a_missing_compiler_is_named_with_what_to_install(find):
    done = find("--jobs", "1", CC="", CXX="")

    assert done.returncode == 1
    assert "there is no C++ compiler" in done.stderr
    assert "apt install" in done.stderr
    assert find().returncode == 1
