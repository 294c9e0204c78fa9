"""An admin server in a thread with the daemon's event loop, for callers that block."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import uvloop

from llamasup.admin.app import AdminServer
from llamasup.config.spec import AdminConf
from tests.fakes.control import FakeControl

T = TypeVar("T")


class LiveAdmin:
    """*control* may be touched through `call` alone."""

    def __init__(self, conf: AdminConf, make_control: Callable[[], FakeControl]) -> None:
        self.conf = conf
        self._make_control = make_control
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._main)

    def start(self) -> None:
        self._thread.start()
        assert self._is_up.wait(20), "the admin server did not come up"

    def call(self, function: Callable[[], T]) -> T:
        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(20)

    def stop(self) -> None:
        if not self._thread.is_alive():
            return
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive(), "the admin server did not end"

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.control = self._make_control()
        self.server = AdminServer(self.control, self.conf)
        await self.server.start()
        self._is_up.set()
        await self._stop.wait()
        await self.server.close()


@contextmanager
def live_admin(
    conf: AdminConf, make_control: Callable[[], FakeControl] = FakeControl
) -> Iterator[LiveAdmin]:
    live = LiveAdmin(conf, make_control)
    live.start()
    try:
        yield live
    finally:
        live.stop()
