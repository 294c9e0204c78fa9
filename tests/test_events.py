import asyncio
from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from llamasup.events import ELSEWHERE, LONGEST_MESSAGE, EventLog, Gap, Record


def filled(count: int, size: int = 5) -> EventLog:
    log = EventLog(size, epoch="aa")
    for number in range(1, count + 1):
        log.append(float(number), "chat", "phase", f"m{number}")
    return log


def seqs(found: list[Record | Gap]) -> list[int | str]:
    return [f"gap {one.seq}" if isinstance(one, Gap) else one.seq for one in found]


async def take(reader: AsyncIterator[Record | Gap], count: int) -> list[Record | Gap]:
    async with asyncio.timeout(20):
        return [await anext(reader) for _ in range(count)]


def test_a_record_keeps_what_was_said():
    log = EventLog(epoch="aa")

    record = log.append(12.5, "chat", "exit", "killed by SIGSEGV", "warning")

    assert record == Record(1, 12.5, "chat", "exit", "warning", "killed by SIGSEGV")
    assert log.after(0) == [record]


def test_a_message_is_cut_so_that_the_ring_is_bounded_in_bytes():
    assert len(EventLog().append(0.0, "", "x", "y" * 10**6).message) == LONGEST_MESSAGE


def test_records_that_fell_out_are_announced_as_a_gap():
    assert seqs(filled(7).after(0)) == ["gap 2", 3, 4, 5, 6, 7]
    assert seqs(filled(7).after(1)) == ["gap 2", 3, 4, 5, 6, 7]
    assert seqs(filled(7).after(2)) == [3, 4, 5, 6, 7]
    assert seqs(filled(7).after(7)) == []


def test_a_position_from_the_future_starts_at_the_beginning_with_a_gap():
    """A plain number kept from a longer-lived daemon must not make the reader deaf."""
    assert seqs(filled(2).after(50)) == ["gap 0", 1, 2]


def test_a_cursor_is_read_back():
    log = filled(3)

    assert log.cursor(2) == "aa-2"
    assert log.position("aa-2") == 2
    assert log.position("2") == 2


def test_a_cursor_of_another_daemon_is_elsewhere():
    log = filled(3)

    assert log.position("bb-2") == ELSEWHERE
    assert log.position("aa-4") == ELSEWHERE
    assert seqs(log.after(ELSEWHERE)) == ["gap 0", 1, 2, 3]


def test_what_is_no_cursor_is_told_apart():
    for text in ("", "-1", "aa-", "aa-1x", "1\n", "a b-1", "٣", "9" * 19, "aa--1"):
        assert filled(3).position(text) is None


def test_two_daemons_have_different_epochs():
    assert EventLog().epoch != EventLog().epoch


@given(st.integers(1, 6), st.integers(0, 15), st.integers(-1, 20))
def test_after_agrees_with_a_list_of_everything(size: int, count: int, seq: int):
    log = filled(count, size)

    everything = list(range(1, count + 1))
    kept = everything[-size:]
    start = seq if seq <= count else -1
    wanted: list[int | str] = [number for number in kept if number > start]
    if start < 0 or any(number > start for number in everything if number not in kept):
        wanted.insert(0, f"gap {count - len(kept)}")
    assert seqs(log.after(seq)) == wanted


async def test_a_follower_sees_the_old_then_the_new():
    log = filled(2)
    reader = log.follow(1)

    assert seqs(await take(reader, 1)) == [2]
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(take(reader, 2))
        await asyncio.sleep(0)
        log.append(3.0, "", "x", "three")
        log.append(4.0, "", "x", "four")

    assert seqs(waiting.result()) == [3, 4]


async def test_a_record_appended_while_the_reader_works_is_not_slept_over():
    log = filled(1)
    reader = log.follow(0)
    await take(reader, 1)

    log.append(2.0, "", "x", "two")

    assert seqs(await take(reader, 1)) == [2]


async def test_a_reader_that_falls_behind_sees_a_gap_and_costs_nobody_anything():
    log = filled(1)
    slow, quick = log.follow(0), log.follow(0)
    await take(slow, 1)
    await take(quick, 1)

    for number in range(2, 22):
        log.append(float(number), "", "x", "")
        assert seqs(await take(quick, 1)) == [number]

    assert seqs(await take(slow, 3)) == ["gap 16", 17, 18]


async def test_a_follower_from_elsewhere_goes_on_with_this_daemon():
    log = EventLog(epoch="aa")
    reader = log.follow(ELSEWHERE)

    assert await take(reader, 1) == [Gap(0)]
    log.append(1.0, "", "x", "one")
    assert seqs(await take(reader, 1)) == [1]
