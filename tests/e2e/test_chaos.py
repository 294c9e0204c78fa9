"""Must be seen 3: a thousand kills under load and commands; nothing is lost, doubled or leaked."""

import asyncio
import itertools
import json
import os
import random
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.harness import Daemon, alive, processes_with, running, wait_for
from tests.e2e.test_ends import fake
from tests.fakes.servers import fake_server_path

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

KILLS = int(os.environ.get("LLAMASUP_CHAOS_KILLS", "1000"))
NAMES = ("a", "b", "c")
CLIENTS = 6
POLICY = {
    "restart": {"delay": "10ms", "max_delay": "50ms", "stable": "0s", "burst": 1_000_000},
    "drain_timeout": "2s",
    "stop_timeout": "1s",
    "stop_again_timeout": "1s",
    "hold_timeout": "20s",
}


@dataclass
class Ledger:
    """What happened, told apart as far as the rules do."""

    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    kills: int = 0
    orders: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)


def text_of(body: bytes, *, streamed: bool) -> tuple[str, bool, str]:
    """Return the text of an answer, whether it is whole, and the message of an error in it."""
    if not streamed:
        answer = json.loads(body)
        return answer["choices"][0]["message"]["content"], True, ""
    text, whole, error = "", False, ""
    for line in body.decode().splitlines():
        if line == "data: [DONE]":
            whole = True
        elif line.startswith("data: "):
            event = json.loads(line[6:])
            if "error" in event:
                error = event["error"]["message"]
            else:
                text += event["choices"][0]["delta"].get("content") or ""
    return text, whole, error


async def client(daemon: Daemon, ledger: Ledger, numbers: "itertools.count[int]") -> None:
    """Ask without end; every answer must be whole and ours, or say why it is not."""
    timeout = aiohttp.ClientTimeout(total=60)
    connector = aiohttp.TCPConnector(force_close=random.random() < 0.5)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        while not ledger.over.is_set():
            await ask(session, daemon, ledger, f"q{next(numbers)}q")


async def ask(session: aiohttp.ClientSession, daemon: Daemon, ledger: Ledger, mark: str) -> None:
    name, streamed = random.choice(NAMES), random.random() < 0.5
    prompt = f"fake:id={mark} fake:n={random.randrange(2, 8)} fake:slow=0.005"
    body = {"messages": [{"role": "user", "content": prompt}], "stream": streamed}
    url = f"http://127.0.0.1:{daemon.ports[name]}/v1/chat/completions"
    try:
        async with session.post(url, json=body) as answer:
            data = await answer.read()
    except (aiohttp.ClientError, TimeoutError) as exc:
        # Only a plain answer that had begun may be cut: its end is a closed connection.
        kind = "cut" if isinstance(exc, aiohttp.ClientPayloadError) and not streamed else "lost"
        ledger.answers[kind] += 1
        if kind == "lost":
            ledger.wrong.append(f"{mark} to {name}: {exc!r}")
        return
    if answer.status in (502, 503):
        assert json.loads(data)["error"]["message"]
        ledger.answers[f"refused {answer.status}"] += 1
        return
    text, whole, error = text_of(data, streamed=streamed)
    if answer.status != 200 or not (whole or error) or (whole and text.count(mark) != 1):
        ledger.wrong.append(f"{mark} to {name}: {answer.status} {data[-300:]!r}")
    ledger.answers["whole" if whole else "ended by an error event"] += 1


async def operator(daemon: Daemon, ledger: Ledger) -> None:
    """Give random commands; what was stopped is started again before long."""
    while not ledger.over.is_set():
        name = random.choice(NAMES)
        verb = random.choice(("stop", "start", "start", "restart"))
        body = {"now": random.random() < 0.5}
        await asyncio.to_thread(daemon.admin, "POST", f"/v1/instances/{name}/{verb}", body)
        ledger.orders += 1
        await asyncio.sleep(random.uniform(0.0, 0.5))


async def killer(daemon: Daemon, ledger: Ledger) -> None:
    """Kill mostly what serves, and now and then whatever runs, at any moment of its life."""
    while ledger.kills < KILLS:
        rows = await asyncio.to_thread(daemon.rows)
        any_phase = random.random() < 0.2
        victims = [
            row["pid"]
            for row in rows.values()
            if row["pid"] and (any_phase or row["phase"] in ("ready", "draining"))
        ]
        if victims:
            try:
                os.kill(random.choice(victims), signal.SIGKILL)
                ledger.kills += 1
            except ProcessLookupError:
                pass
        await asyncio.sleep(random.uniform(0.0, 0.15))
    ledger.over.set()


async def observer(daemon: Daemon, ledger: Ledger) -> None:
    """Look at the kernel's process table: never two living servers of one instance."""
    while not ledger.over.is_set():
        for name in NAMES:
            pids = await asyncio.to_thread(processes_with, f"{daemon.runtime_dir}/{name}.")
            if len(pids) > 1 and all(alive(pid) for pid in pids):
                ledger.wrong.append(f"{name}: {len(pids)} processes at once")
        await asyncio.sleep(0.1)


async def storm(daemon: Daemon) -> Ledger:
    ledger, numbers = Ledger(), itertools.count()
    async with asyncio.timeout(600), asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(client(daemon, ledger, numbers))
        group.create_task(operator(daemon, ledger))
        group.create_task(observer(daemon, ledger))
        group.create_task(killer(daemon, ledger))
    return ledger


def calm(daemon: Daemon) -> None:
    """Bring every instance back to ready."""
    for name in NAMES:
        daemon.order("start", name)
    daemon.wait_ready()


async def test_a_thousand_kills_lose_double_and_leak_nothing() -> None:
    daemon = Daemon(fake_server_path(), {name: fake() for name in NAMES}, defaults=POLICY)
    with running(daemon):
        daemon.wait_ready()
        files = daemon.fds()

        ledger = await storm(daemon)
        calm(daemon)

        print(f"\n{ledger.kills} kills, {ledger.orders} commands, {dict(ledger.answers)}")
        assert ledger.wrong == []
        assert ledger.answers["whole"] > KILLS / 4
        rows = daemon.rows()
        sockets = {path.name for path in Path(daemon.runtime_dir).glob("*.sock")}
        assert sockets == {"admin.sock"} | {
            f"{name}.{rows[name]['generation']}.sock" for name in NAMES
        }
        assert len(processes_with(str(daemon.runtime_dir))) == len(NAMES)
        # Idle connections time out; one more may be that of this very look.
        wait_for(lambda: daemon.fds() <= files + 1, "no file is left open", limit=120)
        assert daemon.rss_mb() < 75
