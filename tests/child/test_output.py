import asyncio
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamasup.child.output import CONTINUED, LONGEST_LINE, Line, LineCutter, LogBook, OutputReader
from llamasup.clock import Now
from tests.child.conftest import PATIENCE, eventually


class StoppedClock:
    def now(self) -> Now:
        return Now(mono=1.0, wall=2.0)


class ListSink:
    def __init__(self) -> None:
        self.got: list[tuple[str, int, float, list[bytes]]] = []

    def write(self, name, gen, at, lines) -> None:
        self.got.append((name, gen, at, list(lines)))


def book(**limits) -> LogBook:
    return LogBook("chat", StoppedClock(), **limits)


def texts(lines: list[Line]) -> list[str]:
    return [line.text for line in lines]


@given(st.lists(st.binary(max_size=50)))
def test_lines_do_not_depend_on_how_the_bytes_were_chopped(chunks):
    cutter = LineCutter()

    lines = [line for chunk in chunks for line in cutter.feed(chunk)] + cutter.finish()

    whole = b"".join(chunks)
    expected = whole.split(b"\n")
    assert lines == (expected if expected[-1] else expected[:-1])


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 5 * LONGEST_LINE), st.integers(200, 70000))
def test_a_line_of_any_length_is_cut_into_bounded_parts(length, step):
    cutter = LineCutter()
    data = ("ä" * (length // 2 + 1)).encode() + b"\n"

    chunks = [data[i : i + step] for i in range(0, len(data), step)]
    parts = [line for chunk in chunks for line in cutter.feed(chunk)]

    assert all(len(part) <= LONGEST_LINE + len(CONTINUED) for part in parts)
    assert b"".join(part.removesuffix(CONTINUED) for part in parts) == data[:-1]
    assert all(part.decode() for part in parts)  # no character is torn


def test_what_never_ends_is_not_kept_back():
    cutter = LineCutter()

    parts = [line for _ in range(100) for line in cutter.feed(b"x" * 1000)]

    assert parts == [b"x" * LONGEST_LINE + CONTINUED] * (100_000 // LONGEST_LINE)
    assert cutter.finish() == [b"x" * (100_000 % LONGEST_LINE)]


def test_what_is_shown_suits_a_terminal():
    log = book()

    log.append(1, [b"\x1b[31mred\x07\tok\r", b"\xff\xfe", "é\x9b2J\x7f".encode()])

    assert log.tail(9) == [
        Line(1, 2.0, 1, "\\x1b[31mred\\x07\tok"),
        Line(2, 2.0, 1, "\ufffd\ufffd"),
        Line(3, 2.0, 1, "é\\x9b2J\\x7f"),
    ]


def test_the_ring_is_bounded_in_lines():
    log = book(max_lines=3)

    log.append(1, [b"a", b"b"])
    log.append(2, [b"c", b"d"])

    assert texts(log.tail(9)) == ["b", "c", "d"]
    assert texts(log.tail(2)) == ["c", "d"]
    assert texts(log.tail(0)) == []
    assert texts(log.tail(9, gen=1)) == ["b"]
    assert (log.lines, log.bytes) == (4, 8)


def test_the_ring_is_bounded_in_bytes():
    log = book(max_bytes=10)

    log.append(1, [b"12345", b"67890", b"x"])

    assert texts(log.tail(9)) == ["67890", "x"]


def test_a_batch_greater_than_the_ring_keeps_its_end():
    log = book(max_lines=3)

    log.append(1, [b"old"])
    log.append(1, [b"%d" % number for number in range(10)])

    assert [(line.seq, line.text) for line in log.tail(9)] == [(9, "7"), (10, "8"), (11, "9")]


def test_a_reader_who_comes_too_late_is_told_how_much_it_missed():
    log = book(max_lines=2)
    log.append(1, [b"a", b"b", b"c", b"d"])

    assert [(line.seq, line.text) for line in log.after(1)] == [
        (2, "[1 lines lost]"),
        (3, "c"),
        (4, "d"),
    ]
    assert texts(log.after(2)) == ["c", "d"]
    assert texts(log.after(3)) == ["d"]
    assert log.after(4) == []


def test_sinks_get_every_line_raw():
    sink = ListSink()
    log = LogBook("chat", StoppedClock(), [sink], max_lines=1)

    log.append(7, [b"a\x1b", b"b"])

    assert sink.got == [("chat", 7, 2.0, [b"a\x1b", b"b"])]


async def test_followers_get_what_is_new_and_see_their_gaps():
    log = book(max_lines=2)
    got: list[str] = []

    async def follow() -> None:
        async for line in log.follow(0):
            got.append(line.text)  # noqa: PERF401 - one by one, as they come

    async with asyncio.TaskGroup() as group:
        task = group.create_task(follow())
        await eventually(lambda: task.get_coro().cr_await is not None)
        log.append(1, [b"a"])
        await eventually(lambda: got == ["a"])
        log.append(1, [b"b", b"c", b"d"])
        await eventually(lambda: got == ["a", "[1 lines lost]", "c", "d"])
        task.cancel()


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    return reader, writer


async def test_a_last_line_without_an_end_is_kept(pipe):
    log = book()
    reader = OutputReader(pipe[0], log, 1)
    os.write(pipe[1], b"one\ntwo")

    os.close(pipe[1])

    await eventually(lambda: texts(log.tail(9)) == ["one", "two"])
    assert texts(reader.tail(1)) == ["two"]
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(pipe[0])


async def test_a_pipe_that_stays_open_is_read_and_left(pipe):
    """A stranger goes on writing: what is there is read, and we do not wait for more."""
    log = book()
    reader = OutputReader(pipe[0], log, 1)
    os.write(pipe[1], b"one\ntwo")

    async with asyncio.timeout(PATIENCE):
        await reader.finish()

    assert texts(log.tail(9)) == ["one", "two"]
    with pytest.raises(BrokenPipeError):
        os.write(pipe[1], b"x")
    os.close(pipe[1])
