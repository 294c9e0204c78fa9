"""What the fake's HTTP does beyond the contract that is compared with the real one."""

from tests.contract.talk import read_all, read_until


def test_garbage_and_huge_answers_on_demand(fake):
    server = fake("garbage")
    server.wait_for(lambda: "listening on" in server.log, "the start")

    with server.open("/health", {}) as connection:
        assert b"this is not HTTP" in read_all(connection)
    server.control.ask(clear=["garbage"], set={"huge": 2})

    assert len(server.ask("/health").body) == 2 << 20


def test_requests_sent_ahead_are_answered_in_order(fake):
    server = fake()
    server.wait_until(200)

    with server.open("/tokenize", {"content": "a"}) as connection:
        connection.sendall(
            b"GET /slots HTTP/1.1\r\nHost: x\r\n\r\nGET /x HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        data = read_all(connection)

    assert data.index(b'"tokens"') < data.index(b'"n_ctx"') < data.index(b"404 Not Found")


def test_an_expected_100_is_sent(fake):
    server = fake()
    server.wait_until(200)

    with server.open("/tokenize", {"content": "a"}) as connection:
        read_until(connection, b'"tokens"')
        connection.sendall(
            b"POST /tokenize HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
            b"Content-Length: 15\r\n\r\n"
        )
        assert read_until(connection, b"\r\n\r\n").startswith(b"HTTP/1.1 100 Continue\r\n")
        connection.sendall(b'{"content":"b"}')
        assert b'"tokens"' in read_until(connection, b'"tokens"')
