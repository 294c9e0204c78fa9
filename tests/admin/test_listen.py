import os
import socket
import stat
from pathlib import Path

import aiohttp
import pytest

from llamasup.admin.app import AdminServer
from llamasup.config.spec import Address, AdminConf
from llamasup.errors import AlreadyRunningError, ListenError
from tests.fakes.control import FakeControl


async def test_the_socket_is_for_owner_and_group_alone(server: AdminServer, conf: AdminConf):
    before = os.umask(0o022)
    os.umask(before)

    assert stat.S_IMODE(os.stat(conf.socket).st_mode) == 0o660
    assert os.umask(before) == before


async def test_a_stale_socket_is_replaced(conf: AdminConf, control: FakeControl):
    left = socket.socket(socket.AF_UNIX)
    left.bind(conf.socket)
    left.close()

    server = AdminServer(control, conf)
    await server.start()
    await server.close()

    assert not os.path.exists(conf.socket)


async def test_a_socket_that_answers_is_left_alone(
    server: AdminServer, conf: AdminConf, client: aiohttp.ClientSession, control: FakeControl
):
    second = AdminServer(control, AdminConf(conf.socket))

    with pytest.raises(AlreadyRunningError, match="another daemon answers there"):
        await second.start()

    async with client.get("/healthz") as answer:
        assert answer.status == 200


async def test_a_file_that_is_no_socket_is_left_alone(conf: AdminConf, control: FakeControl):
    Path(conf.socket).write_text("mine")

    with pytest.raises(ListenError, match="something else than a socket"):
        await AdminServer(control, conf).start()

    assert Path(conf.socket).read_text() == "mine"


async def test_a_path_too_long_and_a_missing_folder_are_said(tmp_path: Path, control: FakeControl):
    with pytest.raises(ListenError, match="longer than 107 bytes"):
        await AdminServer(control, AdminConf("/tmp/" + "x" * 120)).start()
    with pytest.raises(ListenError, match="No such file or directory"):
        await AdminServer(control, AdminConf(str(tmp_path / "none" / "admin.sock"))).start()


async def test_a_busy_port_leaves_nothing_open(tmp_path: Path, control: FakeControl):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        path = str(tmp_path / "admin.sock")
        address = Address("127.0.0.1", taken.getsockname()[1])

        with pytest.raises(ListenError, match=f"cannot listen on {address}"):
            await AdminServer(control, AdminConf(path, address)).start()

    assert not os.path.exists(path)


async def test_close_leaves_a_successors_socket_alone(conf: AdminConf, control: FakeControl):
    server = AdminServer(control, conf)
    await server.start()
    os.rename(conf.socket, conf.socket + ".old")
    Path(conf.socket).write_text("successor")

    await server.close()

    assert Path(conf.socket).read_text() == "successor"
