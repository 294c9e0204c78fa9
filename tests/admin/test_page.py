import aiohttp

from tests.fakes.control import FakeControl


async def test_the_page_needs_nothing_else_and_escapes_what_it_shows(
    client: aiohttp.ClientSession, control: FakeControl
):
    control.set_phase("chat", "backoff", "<script>alert(1)</script>")

    async with client.get("/") as answer:
        text = await answer.text()

    assert answer.content_type == "text/html"
    assert answer.headers["Refresh"] == "5"
    assert "&lt;script&gt;alert(1)" in text
    assert "<script" not in text
    assert "://" not in text
    assert "src=" not in text
