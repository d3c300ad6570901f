"""Rows that are published, awaited, counted, refused and named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from headrace_client.error import ClosedError, HeadraceError, PublishRefusedError
from headrace_pipeline.error import RowsRefusedError
from headrace_pipeline.limits import SINK_REFUSED_NAMED_MAX, SINK_ROUTES_PROVEN_MAX
from headrace_pipeline.sinks.exchange.publish import RowPublisher, Tally
from headrace_pipeline.sinks.exchange.row import Row
from headrace_protos.broker.v1.message_pb2 import Message

UNCONFIRMED = 4


class FakeAnswer:
    def __init__(self, error: HeadraceError | None) -> None:
        self.is_done = False
        self.found = error

    @property
    def error(self) -> HeadraceError | None:
        return self.found if self.is_done else None


class FakeSender:
    """Answers when it is flushed, and what `settles` says at once.

    Attributes:
        sent: bodies, and None for each flush.
        refuses: routing keys.
    """

    resent_count = 0

    def __init__(self, *refuses: str, settles: bool = False) -> None:
        self.sent: list[bytes | None] = []
        self.numbers: list[int] = []
        self.refuses = refuses
        self.settles = settles
        self.answers: list[FakeAnswer] = []
        self.failure: HeadraceError | None = None

    def publish_all(
        self, messages: Iterable[Message], sequences: Iterable[int] | None = None
    ) -> Sequence[FakeAnswer]:
        self.numbers.extend(sequences or ())
        found = []
        for message in messages:
            self.sent.append(message.body)
            refused = message.routing_key in self.refuses
            found.append(FakeAnswer(PublishRefusedError("no queue") if refused else None))
            found[-1].is_done = self.settles
        self.answers += found
        return found

    def flush(self) -> None:
        self.sent.append(None)
        for each in self.answers:
            each.is_done = True
        if self.failure is not None:
            raise self.failure
        if any(each.error for each in self.answers):
            raise PublishRefusedError("the first")


def row(number: int, key: str = "k", **more: str) -> Row:
    message = Message(body=b"%d" % number, routing_key=key, exchange=more.get("exchange"))
    if "message_id" in more:
        message.properties.message_id = more["message_id"]
    return Row(number, message)


def publisher(sender: FakeSender, *, fails: bool = True, proves: bool = False) -> RowPublisher:
    return RowPublisher(sender, 0, fails, proves, UNCONFIRMED)


def test_rows_are_counted_once_they_are_safe() -> None:
    sender = FakeSender()
    rows = publisher(sender)
    rows.publish([row(1), row(2)])
    rows.publish([row(5)])
    assert rows.tally == Tally()
    assert rows.finish() == Tally(published=3, byte_count=3)
    assert sender.sent == [b"1", b"2", b"5", None]
    assert sender.numbers == [1, 2, 5]


def test_who_is_not_known_by_numbers_sends_none() -> None:
    sender = FakeSender()
    RowPublisher(sender, None, True, False, UNCONFIRMED).publish([row(7)])
    assert sender.numbers == []


def test_a_refusal_fails_and_names_the_row() -> None:
    sender = FakeSender("bad", settles=True)
    rows = publisher(sender)
    rows.publish([row(1)])
    with pytest.raises(RowsRefusedError) as caught:
        rows.publish([row(2, "bad", exchange="x", message_id="m"), row(3)])
    assert str(caught.value) == (
        "1 rows were refused: row 2, exchange 'x', routing key 'bad', message id 'm': no queue"
    )
    assert rows.tally.published == 2


def test_a_row_that_is_no_message_is_refused_and_not_sent() -> None:
    sender = FakeSender()
    rows = publisher(sender, fails=False)
    rows.publish([Row(1, None, "payload: is null"), row(2)])
    tally = rows.finish()
    assert (tally.published, tally.refused, sender.numbers) == (1, 1, [2])
    assert str(tally.named[0]) == "row 1: payload: is null"
    with pytest.raises(RowsRefusedError, match="row 1: payload: is null"):
        publisher(FakeSender()).publish([Row(1, None, "payload: is null")])


def test_some_refused_rows_are_named_and_all_are_counted() -> None:
    sender = FakeSender("bad")
    rows = publisher(sender)
    rows.publish([row(number, "bad") for number in range(1, SINK_REFUSED_NAMED_MAX + 3)])
    with pytest.raises(
        RowsRefusedError, match="row 1, routing key 'bad': no queue; row 2"
    ) as caught:
        rows.finish()
    assert caught.value.count == SINK_REFUSED_NAMED_MAX + 2
    assert str(caught.value).endswith("; and 2 more")


def test_dropped_rows_do_not_hold_up_the_others() -> None:
    sender = FakeSender("bad")
    rows = publisher(sender, fails=False)
    rows.publish([row(1), row(2, "bad"), row(3)])
    tally = rows.finish()
    assert (tally.published, tally.refused) == (2, 1)


def test_a_failure_of_the_publisher_is_one_of_the_task() -> None:
    sender = FakeSender()
    sender.failure = ClosedError("gone")
    rows = publisher(sender)
    rows.publish([row(1)])
    with pytest.raises(ClosedError):
        rows.finish()


def test_the_first_row_of_each_route_is_awaited() -> None:
    sender = FakeSender()
    rows = publisher(sender, proves=True)
    rows.publish([row(1), row(2), row(3, "other"), row(4)])
    rows.publish([row(5, "other"), row(6, "other", exchange="x")])
    assert sender.sent == [b"1", None, b"2", b"3", None, b"4", b"5", b"6", None]


def test_nothing_is_sent_behind_the_first_row_of_a_route_that_is_refused() -> None:
    sender = FakeSender("bad")
    rows = publisher(sender, proves=True)
    with pytest.raises(RowsRefusedError, match=r"^1 rows"):
        rows.publish([row(1), row(2, "bad"), row(3)])
    assert [each for each in sender.sent if each is not None] == [b"1", b"2"]


def test_so_many_routes_are_awaited_and_no_more() -> None:
    sender = FakeSender()
    rows = publisher(sender, proves=True)
    rows.publish([row(number, str(number)) for number in range(1, SINK_ROUTES_PROVEN_MAX + 10)])
    assert sender.sent.count(None) == SINK_ROUTES_PROVEN_MAX


def test_answered_rows_do_not_pile_up_behind_one_that_is_not() -> None:
    sender = FakeSender(settles=True)
    rows = publisher(sender)
    sender.settles = False
    rows.publish([row(1)])
    sender.settles = True
    for number in range(2, 100):
        rows.publish([row(number)])
    assert rows.tally.published >= 98 - 2 * UNCONFIRMED
    assert rows.finish().published == 99
