"""The words of LLAMASUP_FAKE and the gates."""

import asyncio

import pytest

from llamasup.fake.faults import Faults, Gates, count_start


@pytest.mark.parametrize(
    ("text", "start", "words"),
    [
        ("", 1, {}),
        ("load=2 ignore_term,ntok=5", 1, {"load": "2", "ignore_term": "", "ntok": "5"}),
        ("hang_load", 1, {"load": "never"}),
        ("refuse_start=2", 2, {"exit_at": "start:1"}),
        ("refuse_start=2", 3, {}),
        ("exit_at=loading:1@1", 1, {"exit_at": "loading:1"}),
        ("exit_at=loading:1@1", 2, {}),
    ],
)
def test_words(text, start, words):
    assert Faults(text, start).words == words


def test_starts_are_counted_in_a_file(tmp_path):
    path = str(tmp_path / "n")

    assert [count_start(path), count_start(path), count_start(None)] == [1, 2, 1]


async def test_a_step_lets_so_many_through_and_opening_lets_all():
    gates = Gates()
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(20):
        waiting = [tasks.create_task(gates.passing("g")) for _ in range(3)]
        await asyncio.sleep(0)
        gates.step("g", 2)
        await asyncio.wait(waiting[:2])
        assert gates.waiting == {"g": 1}
        gates.open("g")
        await waiting[2]
        await gates.passing("g")
        gates.close("g")
        again = tasks.create_task(gates.passing("g"))
        await asyncio.sleep(0)
        assert gates.waiting == {"g": 1}
        gates.open("g")
        await again
