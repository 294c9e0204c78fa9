"""The names of runtime files."""

from llamasup import paths


def test_each_generation_has_its_own_socket_that_llama_server_takes_for_one() -> None:
    assert paths.socket_path("/run/l", "chat", 7) == "/run/l/chat.7.sock"


def test_no_two_kinds_of_files_share_a_name() -> None:
    names = {
        paths.socket_path("/r", "llamasup", 1),
        paths.lock_path("/r", "llamasup"),
        paths.daemon_lock_path("/r"),
        paths.empty_config_home("/r"),
    }

    assert len(names) == 4
