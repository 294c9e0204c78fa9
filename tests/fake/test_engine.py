"""Magic words of prompts, and what the tests count."""

import http.client

import pytest

from llamasup.fake.engine import magic_of


def chat(text: str, **more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 3, **more}


def said(answer) -> str:
    return answer.json()["choices"][0]["message"]["content"]


def test_magic_words_are_found():
    assert magic_of("hi fake:id=a1 fake:crash you fake:exit=3:2") == {
        "id": "a1",
        "crash": "",
        "exit": "3:2",
    }


def test_the_answer_says_whose_it_is_and_is_always_the_same(fake):
    server = fake()
    server.wait_until(200)

    first = said(server.ask("/v1/chat/completions", chat("fake:id=abc")))
    again = said(server.ask("/v1/chat/completions", chat("fake:id=abc")))

    assert first == again == "abc: w1 w2 "
    assert server.control.ask()["seen"] == {"abc": 2}


def test_a_prompt_may_ask_for_a_length(fake):
    server = fake()
    server.wait_until(200)

    answer = server.ask("/v1/chat/completions", chat("fake:n=5")).json()

    assert answer["choices"][0]["message"]["content"] == "w0 w1 w2 w3 w4 "
    assert answer["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("fake:crash", -11),
        ("fake:exit0", 0),
        ("fake:exit=5", 5),
        ("fake:signal=ABRT", -6),
        ("fake:crash=2", -11),
    ],
)
def test_a_prompt_may_end_it(fake, word, code):
    server = fake()
    server.wait_until(200)

    with pytest.raises((OSError, http.client.HTTPException)):
        server.ask("/v1/chat/completions", chat(word))

    assert server.end() == code


def test_a_stream_ends_after_the_tokens_asked_for(fake):
    server = fake()
    server.wait_until(200)

    with server.open("/v1/chat/completions", chat("fake:exit=0:2", stream=True)) as connection:
        data = b""
        while piece := connection.recv(65536):
            data += piece

    assert b'"w0 "' in data
    assert b'"w2 "' not in data
    assert server.end() == 0


def test_a_prompt_may_fail_or_hang_or_wait(fake):
    server = fake()
    server.wait_until(200)

    assert server.ask("/v1/chat/completions", chat("fake:500")).status == 500
    with server.open("/v1/chat/completions", chat("fake:hang")):
        server.control.wait(in_flight=1)
    with server.open("/v1/chat/completions", chat("fake:gate=mine")) as connection:
        server.control.wait(waiting={"mine": 1})
        server.control.ask(open="mine")
        assert connection.recv(1) == b"H"


def test_a_wedge_stops_every_request_and_leaves_health_alone(fake):
    server = fake("wedge_after=2", "--parallel", "1")
    server.wait_until(200)

    with server.open("/v1/chat/completions", chat("hi", stream=True)) as connection:
        data = connection.recv(65536)
        while b'"w1 "' not in data:
            data += connection.recv(65536)
        slot = server.ask("/slots").json()[0]

    assert slot["is_processing"] is True
    assert slot["next_token"][0]["n_decoded"] == 2
    assert server.ask("/health").status == 200


def test_requests_beyond_the_slots_wait_their_turn(fake):
    server = fake("itl=gate", "--parallel", "1", "--metrics")
    server.wait_until(200)

    with (
        server.open("/v1/chat/completions", chat("fake:id=a")) as first,
        server.open("/v1/chat/completions", chat("fake:id=b")) as second,
    ):
        server.control.wait(deferred=1)
        assert b"llamacpp:requests_deferred 1\n" in server.ask("/metrics").body
        server.control.ask(open="itl")
        assert first.recv(1) == second.recv(1) == b"H"
