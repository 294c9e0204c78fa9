"""The prober of one generation, against a fake that is moved step by step."""

import asyncio
import itertools
from dataclasses import replace

import pytest

from llamasup.config.spec import Kind
from llamasup.core.model import (
    Listening,
    Loaded,
    ProbeFailed,
    ProbePassed,
    Progressed,
    Unfit,
    Warmed,
)
from tests.probe.conftest import FAST, GEN, probing, spec

UP = [Loaded(GEN), Warmed(GEN)]


async def test_a_load_is_followed_from_the_first_answer_to_the_warm_up(fake):
    server = fake("load=gate prefill=gate")

    async with probing(spec(), server.socket) as posted:
        await posted.until(Listening(GEN))
        await server.ask(open="load")
        await posted.until(Loaded(GEN))
        await server.wait(waiting={"prefill": 1})
        assert posted.news == [Listening(GEN), Loaded(GEN)]
        await server.ask(open="prefill")
        await posted.until(Warmed(GEN))

    assert posted.news == [Listening(GEN), *UP]


async def test_a_socket_that_comes_late_is_waited_for(fake):
    server = fake("bind_late=gate")

    async with probing(spec(), server.socket) as posted:
        await server.wait(waiting={"bind_late": 1})
        assert posted.news == []
        await server.ask(open="bind_late")
        await posted.until(Warmed(GEN))


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        (Kind.CHAT, []),
        (Kind.EMBEDDING, ["--embeddings", "--pooling", "mean"]),
        (Kind.RERANK, ["--rerank"]),
    ],
)
async def test_each_kind_is_warmed_up_by_its_own_request(fake, kind, args):
    server = fake("", *args)

    async with probing(spec(kind), server.socket) as posted:
        await posted.until(Warmed(GEN))

    assert (await server.ask())["inferences"] == 1


async def test_the_key_is_used(fake, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    server = fake("", "--api-key-file", str(keys))

    async with probing(spec(api_key="secret"), server.socket) as posted:
        await posted.until(Warmed(GEN))
    async with probing(spec(api_key="wrong"), server.socket) as posted:
        await posted.until(Unfit)

    assert "Invalid API Key" in posted.news[-1].reason


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ("wrong_model", "alias"),
        ("wrong_ctx", "1024 tokens of context"),
        ("wrong_slots", "2 slots"),
    ],
)
async def test_another_server_than_asked_for_is_unfit(fake, faults, words):
    server = fake(faults)

    async with probing(spec(), server.socket) as posted:
        await posted.until(Unfit)

    assert [type(each) for each in posted.news] == [Unfit]
    assert words in posted.news[0].reason


async def test_slots_that_are_switched_off_do_not_matter(fake):
    server = fake("no_slots")

    async with probing(spec(), server.socket) as posted:
        await posted.until(Warmed(GEN))


async def test_a_warm_up_that_is_refused_is_unfit_with_the_servers_words(fake):
    server = fake()

    async with probing(spec(Kind.EMBEDDING), server.socket) as posted:
        await posted.until(Unfit)

    assert posted.news[0] == Loaded(GEN)
    assert "Start it with `--embeddings`" in posted.news[1].reason


async def test_a_warm_up_that_fails_is_repeated(fake):
    server = fake("fail=500")

    async with probing(spec(), server.socket) as posted:
        await posted.until(Loaded(GEN))
        while (await server.ask())["inferences"] < 4:
            assert posted.news == [Loaded(GEN)]
        await server.ask(clear=["fail"])
        await posted.until(Warmed(GEN))


async def test_an_answer_of_a_process_that_is_not_ours_is_none(fake):
    server = fake()
    asked = []

    def ours(pid):
        asked.append(pid)
        return len(asked) > 3

    async with probing(spec(), server.socket, ours=ours) as posted:
        await posted.until(Warmed(GEN))

    assert posted.news == UP
    assert set(asked) == {server.process.pid}
    assert len(asked) > 3


async def test_growth_is_posted_until_the_child_is_warm(fake):
    server = fake("load=gate prefill=gate")
    steps = itertools.count()

    async with probing(spec(), server.socket, progress=lambda: (5, next(steps))) as posted:
        await posted.until(Progressed(GEN))
        await server.ask(open="load")
        await server.wait(waiting={"prefill": 1})
        posted.news.clear()
        await posted.until(Progressed(GEN))  # in the warm-up too
        await server.ask(open="prefill")
        await posted.until(Warmed(GEN))
        after = next(steps)
        await server.ask(set={"health": 500})
        await posted.until(ProbeFailed)

    assert next(steps) == after + 1
    assert posted.news[-1].gen == GEN
    assert Progressed(GEN) not in posted.news[posted.news.index(Warmed(GEN)) :]


@pytest.mark.parametrize("values", [[(1, 2)], [(), (1, 2)], [(2, 2), (1, 2)], [(1, 2), ()]])
async def test_what_does_not_grow_is_no_progress(fake, values):
    server = fake("load=gate")
    looks = itertools.chain(values, itertools.repeat(values[-1]))
    seen = asyncio.Semaphore(0)

    def progress():
        seen.release()
        return next(looks)

    async with probing(spec(), server.socket, progress=progress) as posted:
        for _ in range(5):
            await seen.acquire()

    assert Progressed(GEN) not in posted.news


async def test_readiness_is_lost_after_three_failed_rounds_and_comes_back(fake):
    server = fake()

    async with probing(spec(), server.socket) as posted:
        await posted.until(Warmed(GEN))
        await server.ask(set={"health": 500})
        await posted.until(ProbeFailed)
        await server.ask(clear=["health"])
        await posted.until(ProbePassed(GEN))

    assert posted.news == [
        *UP,
        ProbeFailed(GEN, "/health answers 500: asked to be ill"),
        ProbePassed(GEN),
    ]


async def test_a_child_that_hangs_fails_its_probe(fake):
    server = fake()

    async with probing(spec(), server.socket, timing=replace(FAST, timeout=1.0)) as posted:
        await posted.until(Warmed(GEN))
        await server.ask(set={"health": "never"})
        await posted.until(ProbeFailed)

    assert posted.news[-1] == ProbeFailed(GEN, "no answer to /health in time (1.0 s)")


async def watch(raw, statuses):
    """Answer the /health of a ready child with *statuses* in turn, then with 200 for ever."""
    queue = list(statuses)
    rounds = asyncio.Event()
    ready = b'{"model_alias":"tiny","total_slots":2,"default_generation_settings":{"n_ctx":1024}}'
    bodies = {
        "/props": ready,
        "/slots": b'[{"n_ctx":1024},{"n_ctx":1024}]',
        "/v1/chat/completions": b'{"choices":[1]}',
    }
    warm = False

    async def talk(reader, writer):
        nonlocal warm
        target = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        status = 200
        if target == "/health" and warm:
            status = queue.pop(0) if queue else 200
            if not queue:
                rounds.set()
        warm = warm or target == "/v1/chat/completions"
        body = bodies.get(target, b"{}")
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)
        await writer.drain()

    return await raw(talk), rounds


@pytest.mark.parametrize(
    ("statuses", "news"),
    [
        ([500, 200] * 6, []),  # each round is saved by its second connection
        ([500, 500, 500, 500, 200, 500, 500, 500, 500, 200], []),  # two rounds are not three
        (
            [500] * 6 + [500] * 4 + [200],
            [ProbeFailed(GEN, "/health answers 500: {}"), ProbePassed(GEN)],
        ),
    ],
)
async def test_only_three_rounds_of_two_failures_count(raw, statuses, news):
    path, served = await watch(raw, [*statuses, 200, 200])

    async with probing(spec(), path) as posted, asyncio.timeout(20):
        await served.wait()

    assert posted.news == [*UP, *news]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10485760\r\n\r\n" + b" " * 10_485_760,
        b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
    ],
    ids=["reset", "garbage", "10MB", "404", "cut"],
)
async def test_a_child_that_talks_nonsense_is_not_yet_healthy(raw, answer):
    asked = asyncio.Semaphore(0)

    async def talk(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        asked.release()
        writer.write(answer)
        await writer.drain()

    path = await raw(talk)
    async with probing(spec(), path) as posted, asyncio.timeout(20):
        for _ in range(4):
            await asked.acquire()

    assert posted.news == []


@pytest.mark.parametrize("body", [b"[]", b"null", b'"x"', b"{", b"[" * 9999])
async def test_props_that_are_no_object_are_not_yet(raw, body):
    asked = asyncio.Semaphore(0)

    async def talk(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        asked.release()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async with probing(spec(), await raw(talk)) as posted, asyncio.timeout(20):
        for _ in range(6):
            await asked.acquire()

    assert posted.news == []
