"""Properties of a message after it left a queue."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header

from headrace_broker.codecs.field import properties_problem
from headrace_broker.codecs.header_edit import Death, copied_keys, dead_letter
from headrace_broker.model.limits import DEATHS_KEPT_MAX, PROPERTIES_BYTES_MAX, TABLE_FIELDS_MAX

NOW = 1_700_000_000


def block(**properties: Any) -> bytes:
    """The property block that pamqp makes of these properties."""
    return header.ContentHeader(0, 0, commands.Basic.Properties(**properties)).marshal()[12:]


def read(properties: bytes) -> Any:
    """The properties that pamqp reads in a block."""
    assert properties_problem(properties, 0, len(properties)) == ""
    content = header.ContentHeader()
    content.unmarshal(struct.pack(">HHQ", 60, 0, 0) + properties)
    return content.properties


def death(queue: str = "work", reason: str = "expired", **changes: Any) -> Death:
    values = {"exchange": b"orders", "routing_key": b"new", "time_s": NOW, **changes}
    return Death(queue.encode(), reason.encode(), **values)


def die(
    properties: bytes, *args: Any, trusted: bool = True, keep_keys: bool = True, **more: Any
) -> Any:
    return dead_letter(properties, death(*args, **more), trusted, keep_keys)


def test_first_death_is_written_as_rabbitmq_does():
    found = die(block(content_type="text/plain", delivery_mode=2, message_id="m"))
    properties = read(found.data)
    assert properties.headers == {
        "x-death": [
            {
                "count": 1,
                "reason": "expired",
                "queue": "work",
                "time": datetime.fromtimestamp(NOW, UTC),
                "exchange": "orders",
                "routing-keys": ["new"],
            }
        ],
        "x-first-death-reason": "expired",
        "x-first-death-queue": "work",
        "x-first-death-exchange": "orders",
        "x-last-death-reason": "expired",
        "x-last-death-queue": "work",
        "x-last-death-exchange": "orders",
    }
    assert (properties.content_type, properties.delivery_mode) == ("text/plain", 2)
    assert properties.message_id == "m"
    assert found.deaths == [(b"work", b"expired")]


def test_expiration_goes_into_the_first_death_and_nowhere_else():
    found = die(block(expiration="1000", reply_to="r", priority=4), reason="rejected")
    properties = read(found.data)
    assert properties.expiration is None
    assert (properties.reply_to, properties.priority) == ("r", 4)
    assert properties.headers["x-death"][0]["original-expiration"] == "1000"


def test_same_queue_and_reason_counts_up_and_keeps_its_first_time():
    once = die(block())
    again = die(once.data, time_s=NOW + 60, exchange=b"dlx", routing_key=b"other")
    properties = read(again.data)
    [entry] = properties.headers["x-death"]
    assert entry["count"] == 2
    assert entry["time"] == datetime.fromtimestamp(NOW, UTC)
    assert entry["exchange"] == "orders"
    assert properties.headers["x-first-death-exchange"] == "orders"
    assert properties.headers["x-last-death-exchange"] == "dlx"


def test_deaths_are_ordered_by_recency():
    found = die(die(die(block(), "a").data, "b", "rejected").data, "a")
    assert found.deaths == [(b"a", b"expired"), (b"b", b"rejected")]
    headers = read(found.data).headers
    assert [(each["queue"], each["count"]) for each in headers["x-death"]] == [("a", 2), ("b", 1)]
    assert (headers["x-first-death-queue"], headers["x-last-death-queue"]) == ("a", "a")


def test_what_a_client_wrote_as_its_deaths_counts_for_nothing():
    sent = die(die(block(headers={"kept": 1}), "a").data, "b").data
    found = die(sent, "c", trusted=False)
    assert found.deaths == [(b"c", b"expired")]
    headers = read(found.data).headers
    assert len(headers["x-death"]) == 1
    assert headers["x-first-death-queue"] == "c"
    assert headers["kept"] == 1


def test_x_death_of_another_type_is_replaced():
    found = die(block(headers={"x-death": "never", "x-first-death-queue": "liar"}))
    headers = read(found.data).headers
    assert headers["x-death"][0]["count"] == 1
    assert headers["x-first-death-queue"] == "work"


@pytest.mark.parametrize("strange", [[1, "two"], [{"queue": 1, "reason": "expired"}], [{}]])
def test_elements_that_are_no_deaths_are_passed_over(strange: list[Any]):
    found = die(block(headers={"x-death": strange}))
    assert found.deaths == [(b"work", b"expired")]


def test_copied_keys_are_recorded_without_the_blind_ones():
    properties = block(headers={"CC": ["a", "b"], "BCC": ["c"]})
    assert copied_keys(properties, b"CC") == [b"a", b"b"]
    headers = read(die(properties).data).headers
    assert headers["x-death"][0]["routing-keys"] == ["new", "a", "b"]
    assert headers["CC"] == ["a", "b"]


def test_copied_keys_go_when_the_message_gets_another_routing_key():
    properties = block(headers={"CC": ["a"], "BCC": ["c"], "kept": True})
    headers = read(die(properties, keep_keys=False).data).headers
    assert not {"CC", "BCC"} & set(headers)
    assert headers["kept"] is True
    assert headers["x-death"][0]["routing-keys"] == ["new", "a"]


@pytest.mark.parametrize(
    ("delay", "left"),
    [(5000, -5000), (-7, -7), (0, 0), ("5000", -5000), ("soon", "soon"), (1 << 40, -(1 << 40))],
)
def test_delay_is_negated(delay: Any, left: Any):
    headers = read(die(block(headers={"x-delay": delay})).data).headers
    assert headers["x-delay"] == left


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (b"b\x05", 5),
        (b"B\xff", 255),
        (b"s\x01\x00", 256),
        (b"u\xff\xff", 65535),
        (b"I\x00\x00\x01\x00", 256),
        (b"i\xff\xff\xff\xff", 0xFFFFFFFF),
        (b"L\x00\x00\x00\x00\x00\x00\x00\x09", 9),
    ],
)
def test_delay_of_every_integer_type_is_negated(value: bytes, number: int):
    table = b"\x07x-delay" + value
    properties = b"\x20\x00" + struct.pack(">I", len(table)) + table
    assert read(die(properties).data).headers["x-delay"] == -number


@pytest.mark.parametrize(
    "malformed", [b"", b"\x20", b"\x20\x00\x00\x00\x00\x09x", b"\x00\x01", b"\x80\x00\x05abc"]
)
def test_malformed_properties_count_as_empty_ones(malformed: bytes):
    assert die(malformed).data == die(b"\x00\x00").data
    assert copied_keys(malformed, b"CC") == []


def test_deaths_are_bounded_and_the_oldest_go_first():
    data = block()
    for number in range(DEATHS_KEPT_MAX + 3):
        found = die(data, f"queue {number}")
        data = found.data
    assert len(found.deaths) == DEATHS_KEPT_MAX
    assert found.deaths[0] == (b"queue %d" % (DEATHS_KEPT_MAX + 2), b"expired")
    assert len(read(data).headers["x-death"]) == DEATHS_KEPT_MAX


def test_large_headers_leave_room_for_fewer_deaths():
    data = block(headers={"large": "x" * (PROPERTIES_BYTES_MAX - 1600)})
    for number in range(20):
        found = die(data, f"{number:0200d}")
        data = found.data
        assert len(data) <= PROPERTIES_BYTES_MAX
    assert 1 <= len(found.deaths) < 20
    assert len(read(data).headers["x-death"]) == len(found.deaths)


def test_many_fields_leave_room_for_fewer_deaths():
    data = block(headers={f"h{number}": number for number in range(TABLE_FIELDS_MAX - 60)})
    for number in range(20):
        found = die(data, f"queue {number}")
        data = found.data
    assert 1 <= len(found.deaths) < 20
    assert len(read(data).headers["x-death"]) == len(found.deaths)


def test_where_no_death_fits_the_rest_is_done_all_the_same():
    large = "x" * (PROPERTIES_BYTES_MAX - 100)
    found = die(block(headers={"large": large, "x-delay": 9}, expiration="5"), keep_keys=False)
    properties = read(found.data)
    assert found.deaths == []
    assert properties.headers == {"large": large, "x-delay": -9}
    assert properties.expiration is None


def test_many_copied_keys_are_left_out_of_the_record():
    keys = ["k" * 250] * 200
    found = die(block(headers={"CC": keys}))
    assert read(found.data).headers["x-death"][0]["routing-keys"] == ["new"]


SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.text(max_size=20),
    st.none(),
    st.binary(max_size=20).map(bytearray),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
NAMES = st.text("abcxyz-", min_size=1, max_size=12) | st.sampled_from(
    ["x-death", "x-delay", "CC", "BCC", "x-first-death-queue", "x-last-death-reason"]
)
SHORT = st.text(max_size=20)


@given(
    st.dictionaries(NAMES, VALUES, max_size=6),
    st.fixed_dictionaries(
        {},
        optional={
            "content_type": SHORT,
            "content_encoding": SHORT,
            "delivery_mode": st.sampled_from([1, 2]),
            "priority": st.integers(0, 9),
            "correlation_id": SHORT,
            "reply_to": SHORT,
            "expiration": st.integers(0, 1 << 31).map(str),
            "message_id": SHORT,
            "timestamp": st.integers(0, 1 << 31).map(lambda s: datetime.fromtimestamp(s, UTC)),
            "message_type": SHORT,
            "user_id": SHORT,
            "app_id": SHORT,
        },
    ),
    st.booleans(),
    st.booleans(),
)
def test_everything_else_stays_as_it_was(headers, rest, trusted, keep_keys):
    before = block(headers=headers or None, **rest)
    was = read(before)
    found = dead_letter(before, death(), trusted, keep_keys)
    now = read(found.data)
    changed = {"x-death", "x-delay", *(() if keep_keys else ("CC", "BCC"))}
    own = {name for name in now.headers if name.startswith(("x-first-death-", "x-last-death-"))}
    left = {name: value for name, value in (was.headers or {}).items() if name not in changed | own}
    assert {n: v for n, v in now.headers.items() if n not in changed | own} == left
    assert now.headers["x-death"][0]["count"] == 1
    assert now.expiration is None
    for name in rest:
        if name != "expiration":
            assert getattr(now, name) == getattr(was, name)


@given(st.binary(max_size=60), st.booleans(), st.booleans())
def test_any_bytes_give_a_sound_block(data, trusted, keep_keys):
    found = dead_letter(data, death(), trusted, keep_keys)
    assert properties_problem(found.data, 0, len(found.data)) == ""
    assert found.deaths[0] == (b"work", b"expired")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["expired", "rejected"]))))
def test_counts_and_order_are_those_of_the_deaths_told(told):
    data = block(headers={"mine": 1})
    counts: dict[tuple[str, str], int] = {}
    for queue, reason in told:
        data = die(data, queue, reason).data
        counts[queue, reason] = counts.pop((queue, reason), 0) + 1
    headers = read(data).headers
    entries = [((e["queue"], e["reason"]), e["count"]) for e in headers.get("x-death", [])]
    assert entries == list(reversed(counts.items()))
    if told:
        assert headers["x-first-death-queue"] == told[0][0]
        assert headers["x-last-death-reason"] == told[-1][1]
