from llamasup.admin.views import event_view, instance_view, line_view, moment, readiness_view
from llamasup.events import EventLog, Gap
from tests.fakes.control import SINCE, FakeControl, FakeLine, instance


def test_moments_are_iso_8601_with_offset():
    assert moment(SINCE) == "2026-01-01T00:00:00.250+00:00"


def test_a_row_has_plain_values():
    assert instance_view(instance("chat", next_try=SINCE + 60)) == {
        "name": "chat",
        "phase": "ready",
        "reason": "",
        "since": "2026-01-01T00:00:00.250+00:00",
        "pid": 4711,
        "generation": 3,
        "kind": "chat",
        "model": "/models/tiny.gguf",
        "aliases": ["tiny"],
        "listen": "127.0.0.1:1234",
        "restarts": 2,
        "last_exit": {
            "code": None,
            "signal": 11,
            "cause": "crash",
            "detail": "killed by SIGSEGV",
            "at": "2025-12-31T23:59:00.250+00:00",
        },
        "next_try": "2026-01-01T00:01:00.250+00:00",
        "load_seconds": 1.5,
        "in_flight": 1,
        "held": 0,
    }
    assert instance_view(instance("chat", last_exit=None))["last_exit"] is None


def test_an_event_and_a_gap_have_the_same_keys():
    log = EventLog(epoch="e1")
    record = log.append(SINCE, "chat", "exit", "gone", "error")

    assert event_view(record, log) == {
        "id": "e1-1",
        "seq": 1,
        "at": "2026-01-01T00:00:00.250+00:00",
        "instance": "chat",
        "kind": "exit",
        "level": "error",
        "message": "gone",
    }
    gap = event_view(Gap(0), log)
    assert (gap["id"], gap["kind"]) == ("e1-0", "gap")
    assert set(gap) == set(event_view(record, log))


def test_a_line_names_its_generation():
    assert line_view(FakeLine(7, SINCE, 3, "x")) == {
        "seq": 7,
        "at": "2026-01-01T00:00:00.250+00:00",
        "generation": 3,
        "text": "x",
    }


def test_a_stopped_instance_does_not_count_against_readiness_any_other_does():
    for phase in ("waiting", "loading", "unready", "draining", "backoff", "failed", "stuck"):
        rows = (instance("chat"), instance("batch", phase))
        assert readiness_view(FakeControl(*rows).status())["ready"] is False, phase
    rows = (instance("chat"), instance("batch", "stopped"))
    assert readiness_view(FakeControl(*rows).status())["ready"] is True


def test_a_daemon_that_stops_is_not_ready():
    control = FakeControl()
    control.is_shutting_down = True

    assert readiness_view(control.status()) == {
        "ready": False,
        "shutting_down": True,
        "not_ready": [],
    }
