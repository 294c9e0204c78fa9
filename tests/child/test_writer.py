import threading

from llamasup.child.writer import Writer
from tests.child.conftest import PATIENCE


def test_items_are_written_in_order():
    got: list[int] = []
    writer = Writer("test", got.append, limit=10**6)

    for number in range(1000):
        assert writer.offer("a", 1, number)

    assert writer.close(PATIENCE)
    assert got == list(range(1000))


def test_a_hung_writer_costs_its_owner_items_and_nobody_time():
    gate = threading.Event()
    began = threading.Event()
    got: list[str] = []

    def write(item: str) -> None:
        began.set()
        assert gate.wait(PATIENCE)
        got.append(item)

    writer = Writer("test", write, limit=100)
    writer.offer("a", 60, "a1")
    assert began.wait(PATIENCE)

    assert [writer.offer("a", 30, "a2"), writer.offer("a", 30, "a3")] == [True, False]
    assert writer.offer("b", 30, "b1")  # the room of another is not used up
    assert writer.dropped == {"a": 1}
    assert not writer.close(0.05)
    gate.set()
    assert writer.close(PATIENCE)
    assert got == ["a1", "a2", "b1"]
