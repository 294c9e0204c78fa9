"""The environment of a child: a safe base from the daemon's own plus the config's wishes. Pure."""

from collections.abc import Iterable, Mapping

from llamasup.paths import empty_config_home

_INHERITED = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE",
        "LD_LIBRARY_PATH",
    }
)  # fmt: skip
"""All that a child sees of the daemon's environment, beside LC_*. A list of what is allowed: one of
what is not would miss the next LLAMA_*, NOTIFY_SOCKET or credential."""


def clean_env(
    spec_env: Iterable[tuple[str, str]], runtime_dir: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment for a llama-server; *spec_env*, the config's own wish, wins."""
    env = {k: v for k, v in environ.items() if k in _INHERITED or k.startswith("LC_")}
    env["GGML_NO_BACKTRACE"] = "1"  # an abort would start gdb on itself, seconds with a big process
    env["XDG_CONFIG_HOME"] = empty_config_home(runtime_dir)  # no stray config.ini is read
    env.update(spec_env)
    return env
