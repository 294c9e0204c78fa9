"""A served fake control, and a client at its unix socket."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from llamasup.admin.app import AdminServer
from llamasup.config.spec import Address, AdminConf
from tests.fakes.control import FakeControl
from tests.fakes.live_admin import LiveAdmin, live_admin

TOKEN = "s3cret-token"


async def error_of(answer: aiohttp.ClientResponse) -> tuple[int, str]:
    """Return the status and the code of an answer that must be an error."""
    body = await answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message"}
    assert body["error"]["message"]
    return answer.status, body["error"]["code"]


@pytest.fixture
def control() -> FakeControl:
    return FakeControl()


@pytest.fixture
def conf(tmp_path: Path) -> AdminConf:
    return AdminConf(str(tmp_path / "admin.sock"), Address("127.0.0.1", 0), TOKEN)


@pytest.fixture
async def server(control: FakeControl, conf: AdminConf) -> AsyncIterator[AdminServer]:
    server = AdminServer(control, conf)
    await server.start()
    yield server
    await server.close()


@pytest.fixture
async def client(server: AdminServer, conf: AdminConf) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.UnixConnector(conf.socket)
    timeout = aiohttp.ClientTimeout(total=30)
    async with aiohttp.ClientSession("http://local", connector=connector, timeout=timeout) as one:
        yield one


@pytest.fixture
def live(conf: AdminConf) -> Iterator[LiveAdmin]:
    """The server in a thread, on the daemon's event loop."""
    with live_admin(conf) as one:
        yield one


@pytest.fixture
async def tcp(server: AdminServer) -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=30)
    async with aiohttp.ClientSession(f"http://{server.tcp_address}", timeout=timeout) as one:
        yield one
