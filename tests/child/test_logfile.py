import os
import shutil

import pytest

from llamasup.child.logfile import LogFile


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "chat"


def contents(folder) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_each_run_has_a_file_and_only_some_are_kept(tmp_path, folder):
    log = LogFile(str(tmp_path), "chat", max_bytes=1000, keep=2)

    for run in range(5):
        log.start_run()
        log.write(b"run %d\n" % run)

    assert contents(folder) == {
        "chat.log": "run 4\n",
        "chat.log.1": "run 3\n",
        "chat.log.2": "run 2\n",
    }
    log.close()


def test_a_file_that_grows_too_big_is_rotated(tmp_path, folder):
    log = LogFile(str(tmp_path), "chat", max_bytes=10, keep=2)

    for number in range(5):
        log.write(b"line %d\n" % number)

    assert contents(folder) == {
        "chat.log": "line 4\n",
        "chat.log.1": "line 3\n",
        "chat.log.2": "line 2\n",
    }
    log.close()


def test_what_was_there_at_the_start_of_the_daemon_is_a_run_before(tmp_path, folder):
    folder.mkdir()
    (folder / "chat.log").write_text("before\n")
    log = LogFile(str(tmp_path), "chat", max_bytes=1000, keep=2)

    log.start_run()
    log.write(b"now\n")

    assert contents(folder) == {"chat.log": "now\n", "chat.log.1": "before\n"}
    log.close()


def test_a_removed_folder_is_made_again(tmp_path, folder):
    log = LogFile(str(tmp_path), "chat", max_bytes=1000, keep=2)
    log.write(b"one\n")

    shutil.rmtree(folder)
    log.write(b"two\n")

    assert contents(folder) == {"chat.log": "two\n"}
    log.close()


def test_an_error_is_kept_until_it_is_over(tmp_path, folder):
    (tmp_path / "chat").write_text("in the way")
    log = LogFile(str(tmp_path), "chat", max_bytes=1000, keep=2)
    before = os.listdir("/proc/self/fd")

    log.write(b"lost\n")
    assert log.error == f"cannot write {folder}/chat.log: File exists"
    assert os.listdir("/proc/self/fd") == before
    (tmp_path / "chat").unlink()
    log.write(b"written\n")

    assert log.error is None
    assert contents(folder) == {"chat.log": "written\n"}
    log.close()


def test_a_full_disk_is_an_error_and_no_more():
    log = LogFile("/dev", "full", max_bytes=1000, keep=2)

    log.write(b"x\n")

    assert log.error == "cannot write /dev/full/full.log: File exists"
