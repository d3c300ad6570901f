"""Payloads that end with bytes which are not copied."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.codecs.large_payload import MARK, MARK_BYTES, body_start, wrap

BYTES = st.binary(max_size=300)


@given(BYTES, BYTES)
def test_bytes_stand_uncopied_behind_their_head(head: bytes, body: bytes) -> None:
    pieces = wrap(head, [body, memoryview(body)])
    assert pieces[1] is body
    payload = b"".join(pieces)
    start = body_start(payload)
    assert payload[MARK_BYTES:start] == head
    assert payload[start:] == body + body
    assert body_start(payload[:start]) == start


@given(BYTES)
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    for payload in (data, bytes((MARK,)) + data):
        start = body_start(payload)
        assert start == 0 or MARK_BYTES <= start <= len(payload)


def test_head_that_has_not_come_is_none() -> None:
    payload = b"".join(wrap(b"head", [b"body"]))
    assert [body_start(payload[:end]) for end in (0, 4, 5, 8)] == [0, 0, 0, 0]
    assert body_start(payload[:9]) == 9
    assert body_start(b"\xc1\xff\xff\xff\xff" + payload) == 0
