"""What tests of several folders use."""

import pytest


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
