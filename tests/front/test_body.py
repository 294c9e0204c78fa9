"""Request bodies on their way to the child."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamasup.front.body import RequestBody
from llamasup.front.chunks import ChunkError
from llamasup.front.heads import CHUNKED
from tests.front.test_chunks import PIECES, decode, encode, split


def test_a_counted_body_ends_where_it_says():
    body = RequestBody(5)

    assert body.feed(b"abc") == (b"abc", 3)
    assert not body.is_complete
    assert body.feed(b"deGET /") == (b"de", 2)
    assert body.is_complete


@given(PIECES, st.lists(st.integers(min_value=0)))
def test_a_chunked_body_is_framed_anew(pieces: list[bytes], cuts: list[int]):
    body = RequestBody(CHUNKED)
    out = b""

    for part in split(encode(pieces, b";evil=1", b"Content-Length: 7\r\n"), cuts):
        piece, used = body.feed(part)
        assert used == len(part)
        out += piece

    assert body.is_complete
    assert decode(out) == (b"".join(pieces), len(out))
    assert b"evil=1" not in out
    assert out.endswith(b"0\r\n\r\n")


def test_a_broken_chunk_is_an_error():
    with pytest.raises(ChunkError):
        RequestBody(CHUNKED).feed(b"zz\r\n")
