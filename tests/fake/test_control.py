"""The control socket."""

import threading


def test_a_wait_is_answered_when_the_state_has_all_of_it(fake):
    server = fake("load=gate")
    answers = []
    waiter = threading.Thread(target=lambda: answers.append(server.control.wait(phase="loaded")))

    waiter.start()
    server.control.wait(waiting={"load": 1})
    assert answers == []
    server.control.ask(open="load")
    waiter.join(20)

    assert answers[0]["pid"] == server.process.pid
    assert answers[0]["faults"] == {"load": "gate"}


def test_the_next_process_takes_the_socket_over(fake, tmp_path):
    shared = {"LLAMASUP_FAKE_CONTROL": str(tmp_path / "shared.sock")}
    first = fake(**shared)
    first.control = type(first.control)(tmp_path / "shared.sock")
    first.control.wait(pid=first.process.pid)

    second = fake(**shared)
    second.wait_until(200)

    assert first.control.ask()["pid"] == second.process.pid
