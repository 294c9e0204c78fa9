"""What tests of several folders use."""

import signal

import pytest

# A shell ignores SIGINT in what it starts in the background, and programs inherit that: those that
# tests start and end with SIGINT would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
