import asyncio
import os
import re
import threading

from llamasup.child.logs import FileSink, Logs, MirrorSink
from tests.child.conftest import PATIENCE, eventually, lag_of_the_loop


async def test_the_file_has_the_time_and_the_raw_line(tmp_path):
    logs = Logs(str(tmp_path), mirror_fd=None)
    logs.start_run("chat", 3)

    logs.book("chat").append(3, [b"one", b"\xfftwo"])
    logs.close(PATIENCE)

    text = (tmp_path / "chat/chat.log").read_bytes()
    assert re.sub(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", b"T", text) == (
        b"T --- generation 3 ---\nT one\nT \xfftwo\n"
    )
    assert logs.dropped("chat") == 0


async def test_a_hung_log_disk_stalls_nothing(tmp_path):
    """A FIFO that nobody reads stands in for it: already its open hangs."""
    (tmp_path / "chat").mkdir()
    os.mkfifo(tmp_path / "chat/chat.log")
    sink = FileSink(str(tmp_path))
    batch = [b"x" * 1000] * 1000

    async with lag_of_the_loop() as lag:
        for _ in range(50):
            sink.write("chat", 1, 0.0, batch)
            await asyncio.sleep(0)
        sink.write("other", 1, 0.0, [b"a"])

    assert 40 <= sink.dropped("chat") < 50
    assert sink.dropped("other") == 0
    assert lag.cpu < 0.05
    # Let the thread go.
    reader = threading.Thread(target=lambda: (tmp_path / "chat/chat.log").read_bytes())
    reader.start()
    sink.close(PATIENCE)
    assert (tmp_path / "other/other.log").read_bytes()
    reader.join(PATIENCE)


async def test_the_mirror_names_the_instance_and_suits_a_terminal():
    reader, writer = os.pipe()
    mirror = MirrorSink(writer)

    mirror.write("chat", 2, 0.0, [b"hello \x1b[2J", b"there"])
    mirror.close(PATIENCE)
    os.close(writer)

    assert os.read(reader, 1000) == b"chat[2]: hello \\x1b[2J\nchat[2]: there\n"
    os.close(reader)


async def test_the_mirror_lets_a_rate_through_and_counts_the_rest():
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    mirror = MirrorSink(writer, rate=3)

    mirror.write("a", 1, 0.0, [b"1", b"2"])
    mirror.write("a", 1, 0.0, [b"3", b"4", b"5"])
    mirror.write("b", 1, 0.0, [b"1"])
    got = b""

    def read() -> bool:
        nonlocal got
        try:
            got += os.read(reader, 1000)
        except BlockingIOError:
            return False
        return b"suppressed" in got

    await eventually(read)
    assert got == b"a[1]: 1\na[1]: 2\na[1]: 3\nb[1]: 1\na[1]: 2 lines suppressed\n"
    mirror.close(PATIENCE)
    os.close(writer)
    os.close(reader)


async def test_a_blocked_stderr_blocks_nothing():
    reader, writer = os.pipe()
    mirror = MirrorSink(writer, rate=10**9)

    for _ in range(100):
        mirror.write("chat", 1, 0.0, [b"x" * 10_000])

    os.close(reader)  # the hung write ends by EPIPE
    mirror.close(PATIENCE)
    os.close(writer)
