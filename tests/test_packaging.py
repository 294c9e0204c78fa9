"""What is not Python: locks, scripts, the unit, the examples, the README."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from llamasup.config.schema import parse

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BIN = Path(sys.executable).parent
TIMEOUT = 60.0


def run(*command: object, **options):
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT, **options)


def tracked_files() -> list[Path]:
    names = run("git", "ls-files", "-z", cwd=ROOT, check=True).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def lock(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def unlocked(requirements: list[str], pins: dict[str, str]) -> list[str]:
    return [
        text
        for text in requirements
        for req in [Requirement(text)]
        if pins.get(canonicalize_name(req.name), "none") not in req.specifier
    ]


# --- locks ---


def test_the_lock_has_an_admitted_version_of_all_that_llamasup_needs():
    assert unlocked(PROJECT["project"]["dependencies"], lock("requirements.lock")) == []


def test_the_dev_lock_has_an_admitted_version_of_all_that_tests_and_build_need():
    wanted = [*PROJECT["dependency-groups"]["dev"], *PROJECT["build-system"]["requires"]]

    assert unlocked(wanted, lock("requirements-dev.lock")) == []


def test_the_locks_agree():
    runtime, dev = lock("requirements.lock"), lock("requirements-dev.lock")

    assert runtime.items() <= dev.items()


def test_no_file_names_a_package_registry():
    """The machine's own pip settings decide where packages come from."""
    host = re.compile(r"pypi\.(org|python)|python" + r"hosted\.org|index-url", re.IGNORECASE)

    named = [
        str(path.relative_to(ROOT))
        for path in tracked_files()
        if path != Path(__file__).resolve() and host.search(path.read_text(errors="replace"))
    ]

    assert named == []


# --- scripts ---


def scripts() -> list[Path]:
    files = [*(ROOT / "scripts").iterdir(), *(ROOT / ".ci").iterdir()]
    return sorted(path for path in files if path.is_file() and path.suffix != ".py")


@pytest.mark.parametrize("script", scripts(), ids=lambda path: path.name)
def test_a_script_is_executable_and_says_what_it_does(script):
    lines = script.read_text().splitlines()

    assert os.access(script, os.X_OK)
    assert lines[0].startswith("#!/usr/bin/env ")
    assert lines[1].startswith(("# ", '"""'))
    if lines[0].endswith("bash"):
        assert run("bash", "-n", script).stderr == ""
        assert "set -euo pipefail" in lines


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A checkout with nothing in it but what scripts/setup reads first."""
    for name in ("requirements.lock", "requirements-dev.lock", "pyproject.toml", "scripts/setup"):
        copy = tmp_path / name
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())
        copy.chmod(0o755)
    return tmp_path


def test_setup_names_the_python_it_needs(checkout):
    done = run("scripts/setup", cwd=checkout, env={**os.environ, "PYTHON": "/bin/false"})

    assert done.returncode == 1
    assert "no Python 3.11" in done.stderr
    assert not (checkout / ".venv").exists()


def test_setup_names_the_package_of_a_missing_venv_module(checkout):
    python = checkout / "python-without-venv"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *venv*) exit 1;; esac\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)

    done = run("scripts/setup", cwd=checkout, env={**os.environ, "PYTHON": python})

    assert done.returncode == 1
    assert "apt-get install python3-venv" in done.stderr


def test_setup_refuses_an_unknown_option(checkout):
    done = run("scripts/setup", "--devel", cwd=checkout)

    assert (done.returncode, "unknown option --devel" in done.stderr) == (1, True)


# --- the service ---

UNIT = ROOT / "systemd" / "llamasup.service"


def verified(folder: Path, text: str):
    """Verify the unit with a program that exists on this machine."""
    unit = folder / "llamasup.service"
    unit.write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={sys.executable}", text))
    return run("systemd-analyze", "verify", "--man=no", unit, env={**os.environ, "LC_ALL": "C"})


def test_systemd_accepts_the_unit(tmp_path):
    done = verified(tmp_path, UNIT.read_text())

    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_would_complain_about_a_wrong_unit(tmp_path):
    done = verified(tmp_path, UNIT.read_text().replace("KillMode=", "KillMood="))

    assert "KillMood" in done.stderr


def test_the_unit_starts_the_daemon_with_the_installed_command():
    (line,) = re.findall(r"(?m)^ExecStart=(.*)$", UNIT.read_text())

    program, *arguments = line.split()

    assert Path(program).name in PROJECT["project"]["scripts"]
    assert arguments == ["--config", "/etc/llamasup/llamasup.toml"]


def test_the_drop_in_has_only_keys_of_a_service():
    lines = (ROOT / "systemd" / "10-systemd-254.conf").read_text().splitlines()

    assert [line for line in lines if line and not line.startswith("#")] == [
        "[Service]",
        "RestartSteps=5",
        "RestartMaxDelaySec=60",
    ]


# --- README and examples ---

README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return [
        re.sub(r"(?m)^   ", "", text) if indent else text
        for indent, text in re.findall(rf"(?ms)^( *)```{language}\n(.*?)^ *```", README)
    ]


def commands() -> list[list[str]]:
    lines = "\n".join(blocks("sh")).splitlines()
    return [line.split("#")[0].split() for line in lines if line.strip()]


def test_each_configuration_in_the_readme_is_right():
    findings = [parse(tomllib.loads(text)).findings for text in blocks("toml")]

    assert len(findings) == 2
    assert findings == [(), ()]


@pytest.mark.parametrize("page", ["README.md", "docs/testing.md"])
def test_each_file_named_in_a_page_exists(page):
    text = (ROOT / page).read_text()

    named = set(re.findall(r"(?<![\w/])(?:scripts|etc|systemd|docs|tests)/[\w./-]*\w", text))

    assert {"scripts/test", "scripts/check"} <= named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_each_llamasupctl_line_in_the_readme_is_a_command_with_these_options():
    lines = [words for words in commands() if words[0] == "llamasupctl"]

    unknown = [
        words
        for words in lines
        for told in [run(BIN / "llamasupctl", words[1], "--help")]
        if told.returncode != 0
        or any(word not in told.stdout for word in words[2:] if word.startswith("-"))
    ]

    assert len(lines) == 5
    assert unknown == []


def test_the_changelog_begins_with_what_is_unreleased():
    headings = re.findall(r"(?m)^## (.*)$", (ROOT / "CHANGELOG.md").read_text())

    assert headings[0] == "[Unreleased]"
