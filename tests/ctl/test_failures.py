import pytest

from llamasup.ctl.failures import ExitCode, Failure, NoSuchInstance, Unreachable


def test_the_exit_codes_are_those_of_the_contract():
    assert {code.name: int(code) for code in ExitCode} == {
        "DONE": 0,
        "FAILED": 1,
        "USAGE": 2,
        "NOT_READY": 3,
        "NO_SUCH_INSTANCE": 4,
        "TIMED_OUT": 5,
        "UNREACHABLE": 6,
        "INTERRUPTED": 130,
        "BROKEN_PIPE": 141,
    }
    assert [one.exit_code for one in (Failure, NoSuchInstance, Unreachable)] == [1, 4, 6]


def test_a_failure_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]):
    Failure("cannot do it").show()

    assert capsys.readouterr() == ("", "llamasupctl: cannot do it\n")
