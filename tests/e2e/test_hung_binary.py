"""Must be seen 5: a binary on a file system that hangs delays nobody but its own instance."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.fuse, pytest.mark.slow]


def test_a_hung_binary_delays_nobody() -> None:
    """In a mount namespace of its own, so that a hung mount never leaks."""
    namespace = ["unshare", "-m", "--propagation", "private"]
    scenario = [sys.executable, "-m", "tests.e2e.hung_binary"]

    done = subprocess.run([*namespace, *scenario], capture_output=True, text=True, timeout=300)

    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all held" in done.stdout
