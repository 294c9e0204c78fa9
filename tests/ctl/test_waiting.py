from llamasup.core.model import Verb
from llamasup.core.operations import Outcome
from llamasup.ctl.client import Client
from llamasup.ctl.waiting import Wait
from tests.fakes.live_admin import LiveAdmin


def test_phases_are_told_once_each_while_waiting(daemon: LiveAdmin):
    control = daemon.control
    said: list[str] = []
    steps = iter([("loading", "1 GiB"), ("loading", "2 GiB"), ("warming", "")])

    def say(line: str) -> None:
        said.append(line)
        step = next(steps, None)
        if step is None:
            daemon.call(lambda: control.end("op1", Outcome.DONE))
        else:
            daemon.call(lambda: control.set_phase("chat", *step))

    def begin() -> None:
        control.outcome = None

    daemon.call(begin)
    client = Client(daemon.conf.socket)

    (ended,) = Wait(client, [client.command("chat", Verb.RESTART, now=False)], say).run(None)

    assert ended["outcome"] == "done"
    assert said == [
        "chat: ready",
        "chat: loading (1 GiB)",
        "chat: loading (2 GiB)",
        "chat: warming",
    ]


def test_those_that_ended_are_kept_while_others_run(daemon: LiveAdmin):
    def prepare() -> None:
        daemon.control.outcome = None

    daemon.call(prepare)
    client = Client(daemon.conf.socket)
    operations = [client.command(name, Verb.STOP, now=False) for name in ("chat", "embed")]
    daemon.call(lambda: daemon.control.end("op2", Outcome.FAILED, "stuck"))

    ended = Wait(client, operations, lambda line: None).run(0.05)

    assert [(one["id"], one["outcome"]) for one in ended] == [("op1", "running"), ("op2", "failed")]


def test_nothing_under_way_needs_no_daemon():
    done = [{"id": "op1", "instance": "chat", "outcome": "done"}]

    assert Wait(Client("/nowhere"), done, print).run(None) == done
