"""The chunk tracker against a decoder written apart from it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamasup.front.chunks import ChunkError, ChunkTracker


def encode(pieces: list[bytes], extension: bytes = b"", trailer: bytes = b"") -> bytes:
    body = b"".join(b"%X%b\r\n%b\r\n" % (len(p), extension, p) for p in pieces if p)
    return body + b"0\r\n" + trailer + b"\r\n"


def decode(data: bytes) -> tuple[bytes, int]:
    """Return content and length of a good body, read the slow and simple way."""
    content, pos = b"", 0
    while True:
        line, _, _ = data[pos:].partition(b"\r\n")
        pos += len(line) + 2
        size = int(line.split(b";")[0], 16)
        if not size:
            break
        content += data[pos : pos + size]
        pos += size + 2
    while True:
        line, _, _ = data[pos:].partition(b"\r\n")
        pos += len(line) + 2
        if not line:
            return content, pos


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(places)]


PIECES = st.lists(
    st.one_of(st.binary(max_size=40), st.just(b"\r\n0\r\n\r\n"), st.just(b"x" * 3000))
)


@given(
    PIECES,
    st.sampled_from([b"", b";a=b", b';q="x y"']),
    st.sampled_from([b"", b"A: b\r\n"]),
    st.binary(max_size=9),
    st.lists(st.integers(min_value=0)),
    st.booleans(),
)
def test_any_split_finds_the_same_end(
    pieces: list[bytes], ext: bytes, trailer: bytes, after: bytes, cuts: list[int], keeps: bool
):
    good = encode(pieces, ext, trailer)
    content, length = decode(good)
    assert length == len(good)
    payload: list[bytes] = []
    tracker = ChunkTracker(payload if keeps else None)

    passed = 0
    for part in split(good + after, cuts):
        end = tracker.feed(part)
        if end >= 0:
            passed += end
            break
        passed += len(part)

    assert passed == len(good)
    if keeps:
        assert b"".join(payload) == content


BAD = [
    b"\r\n",
    b" 5\r\nhello\r\n",
    b"5 \r\nhello\r\n",
    b"+5\r\nhello\r\n",
    b"-5\r\n",
    b"0x5\r\nhello\r\n",
    b"5_0\r\n",
    b"g\r\n",
    b";a\r\n",
    b"5 ;a\r\nhello\r\n",
    b"5\nhello\r\n",
    b"5\r\nhello\n",
    b"5\r\nhelloX\r\n",
    b"5\r\nhello!!",
    b"5\r\nhello\rX",
    b"5\r\rhello\r\n",
    b"5;a\rb\r\nhello\r\n",
    b"5;a\x00\r\nhello\r\n",
    b"ffffffffffffffffff\r\n",
    b"5;" + b"a" * 300 + b"\r\nhello\r\n",
    b"5;" + b"a" * 300,
    b"0\r\n A: b\r\n\r\n",
    b"0\r\nA : b\r\n\r\n",
    b"0\r\nno colon\r\n\r\n",
    b"0\r\nA: b\n\r\n",
    b"0\r\n" + b"A: b\r\n" * 3000,
    b"0\r\nA: " + b"b" * 9000,
    b"0\r\nTransfer\x00: b\r\n\r\n",
    b"\xd9\xa5\r\nhello\r\n",
]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("step", [1, 2, 7, 100_000])
def test_what_is_no_chunk_is_refused(bad: bytes, step: int):
    def follow() -> list[int]:
        tracker = ChunkTracker()
        return [tracker.feed(bad[at : at + step]) for at in range(0, len(bad), step)]

    with pytest.raises(ChunkError):
        follow()


def test_a_boundary_is_where_a_chunk_may_begin():
    tracker = ChunkTracker()
    seen = []
    for byte in b"3\r\nabc\r\n0\r\n":
        tracker.feed(bytes([byte]))
        seen.append(tracker.at_boundary)

    assert seen == [False] * 7 + [True] + [False] * 3


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=3), st.data())
def test_what_passes_as_one_chunk_is_one_chunk_for_the_tracker(pieces: list[bytes], data):
    body = encode(pieces)
    begin = data.draw(st.integers(0, len(body)))
    piece = body[begin : data.draw(st.integers(begin, len(body)))]
    tracker = ChunkTracker()

    if tracker.passes(piece):
        content: list[bytes] = []
        slow = ChunkTracker(content)
        assert slow.feed(piece) == -1
        assert slow.at_boundary
        assert encode([b"".join(content)]).lower().startswith(piece.lower())


def test_one_whole_chunk_passes_and_nothing_else_does():
    passing = ChunkTracker()
    assert passing.passes(b"3\r\nabc\r\n")
    for other in (
        b"",
        b"3\r\nabc",
        b"3\r\nabc\r\n0\r\n\r\n",
        b"0\r\n\r\n",
        b"+3\r\nabc\r\n",
        b"4\r\nabc\r\n",
    ):
        assert not passing.passes(other)
    amid = ChunkTracker()
    amid.feed(b"9\r\nab")
    assert not amid.passes(b"3\r\nabc\r\n")
