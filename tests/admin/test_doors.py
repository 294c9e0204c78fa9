import logging
import os
from dataclasses import dataclass

import aiohttp
import pytest

from llamasup.admin.answers import Refusal
from llamasup.admin.doors import TcpDoor, check, is_literal, is_loopback
from tests.admin.conftest import TOKEN
from tests.fakes.live_admin import LiveAdmin


@dataclass(frozen=True)
class Case:
    loopback: bool = True
    token: str | None = TOKEN
    hosts: tuple[str, ...] = ("127.0.0.1:9110",)
    authorization: str | None = None
    changing: bool = False


def verdict(case: Case) -> tuple[int, str] | None:
    door = TcpDoor(case.loopback, case.token)
    try:
        check(
            door,
            hosts=list(case.hosts),
            authorization=case.authorization,
            changing=case.changing,
        )
    except Refusal as refusal:
        return refusal.status, refusal.code
    return None


GOOD = f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (Case(), None),
        (Case(token=None), None),
        (Case(changing=True), (401, "token_needed")),
        (Case(changing=True, token=None), (403, "no_token_configured")),
        (Case(changing=True, token=None, authorization="Bearer "), (403, "no_token_configured")),
        (Case(changing=True, authorization=GOOD), None),
        (Case(changing=True, authorization=f"bearer  {TOKEN} "), None),
        (Case(changing=True, authorization=TOKEN), (401, "wrong_token")),
        (Case(changing=True, authorization=f"Basic {TOKEN}"), (401, "wrong_token")),
        (Case(changing=True, authorization=GOOD[:-1]), (401, "wrong_token")),
        (Case(changing=True, authorization="Bearer \udcff"), (401, "wrong_token")),
        (Case(hosts=("evil.example",)), (403, "bad_host")),
        (Case(hosts=("127.0.0.1", "evil.example")), (403, "bad_host")),
        (Case(hosts=("evil.example",), authorization=GOOD), (403, "bad_host")),
        (Case(hosts=()), None),
        # not on loopback: any host name, but reading needs the token as well
        (Case(loopback=False, hosts=("box.lan",)), (401, "token_needed")),
        (Case(loopback=False, hosts=("box.lan",), authorization=GOOD), None),
        (Case(loopback=False, token=None), (403, "no_token_configured")),
        (Case(loopback=False, changing=True, authorization=GOOD), None),
    ],
)
def test_the_first_rule_that_applies_wins(case: Case, expected: tuple[int, str] | None):
    assert verdict(case) == expected


def test_only_names_that_nobody_can_rebind_are_literal():
    for host in ("127.0.0.1", "127.0.0.1:80", "[::1]:80", "::1", "localhost", "LocalHost:1"):
        assert is_literal(host), host
    for host in (
        "",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:80",
        "2130706433",
    ):
        assert not is_literal(host), host


def test_loopback_is_known_for_both_families():
    assert [is_loopback(host) for host in ("127.0.0.1", "127.1.2.3", "::1")] == [True] * 3
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "192.168.1.2")] == [False] * 3


def test_a_token_is_not_printed():
    assert TOKEN not in repr(TcpDoor(True, TOKEN))


async def test_the_log_says_who_asked(
    client: aiohttp.ClientSession, tcp: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "llamasup")

    await client.post("/v1/instances/chat/stop")
    await tcp.post("/v1/instances/chat/start", headers={"Authorization": GOOD})

    assert caplog.messages == [
        f"chat: stop asked for by uid {os.getuid()} (pid {os.getpid()})",
        "chat: start asked for by 127.0.0.1 over TCP",
    ]


def test_the_log_says_so_on_the_daemons_event_loop_too(
    live: LiveAdmin, caplog: pytest.LogCaptureFixture
):
    from llamasup.ctl.client import Client

    caplog.set_level(logging.INFO, "llamasup")

    Client(live.conf.socket).command("chat", "stop", now=False)

    assert caplog.messages == [f"chat: stop asked for by uid {os.getuid()} (pid {os.getpid()})"]
