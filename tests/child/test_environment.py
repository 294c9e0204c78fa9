from llamasup.child.environment import clean_env


def test_only_the_safe_base_is_inherited():
    environ = {
        "PATH": "/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "LC_ALL": "C",
        "TZ": "Europe/Paris",
        "LD_LIBRARY_PATH": "/opt/rocm/lib",
        "LLAMA_ARG_PORT": "1",
        "LLAMA_API_KEY": "secret",
        "NOTIFY_SOCKET": "/run/systemd/notify",
        "WATCHDOG_USEC": "1",
        "LISTEN_FDS": "1",
        "CREDENTIALS_DIRECTORY": "/run/credentials",
        "JOURNAL_STREAM": "1:2",
        "XDG_CONFIG_HOME": "/root/.config",
        "PYTHONPATH": "/x",
    }

    assert clean_env((), "/run/llamasup", environ) == {
        "PATH": "/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "LC_ALL": "C",
        "TZ": "Europe/Paris",
        "LD_LIBRARY_PATH": "/opt/rocm/lib",
        "GGML_NO_BACKTRACE": "1",
        "XDG_CONFIG_HOME": "/run/llamasup/empty",
    }


def test_what_the_config_asks_for_wins():
    env = clean_env((("PATH", "/opt/bin"), ("HSA_X", "1")), "/run/l", {"PATH": "/bin"})

    assert env == {
        "PATH": "/opt/bin",
        "HSA_X": "1",
        "GGML_NO_BACKTRACE": "1",
        "XDG_CONFIG_HOME": "/run/l/empty",
    }
