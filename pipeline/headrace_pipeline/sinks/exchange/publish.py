"""Publishes rows, waits until they are safe, and says which were refused."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from headrace_client.error import HeadraceError, PublishRefusedError
from headrace_pipeline.error import RowsRefusedError
from headrace_pipeline.limits import SINK_REFUSED_NAMED_MAX, SINK_ROUTES_PROVEN_MAX
from headrace_pipeline.sinks.exchange.row import Row
from headrace_protos.broker.v1.message_pb2 import Message

_PENDING_FACTOR: Final = 2  # answered rows behind one that is not, for each that is not, at most


class Answer(Protocol):
    """Outcome of a message; see `headrace_client.blocking.Confirm`."""

    @property
    def is_done(self) -> bool:
        """True if the outcome is known."""

    @property
    def error(self) -> HeadraceError | None:
        """Error, if it is not safe."""


class Sender(Protocol):
    """See `headrace_client.blocking.Publisher`."""

    def publish_all(
        self, messages: Iterable[Message], sequences: Iterable[int] | None = None
    ) -> Sequence[Answer]:
        """Send messages."""

    def flush(self) -> None:
        """Wait until all is answered."""

    @property
    def resent_count(self) -> int:
        """Messages that were sent again."""


@dataclass(frozen=True)
class Refusal:
    """A row that is in none of its queues, or not in all of them."""

    row: str  # its number, and in what
    exchange: str | None  # that it was published to; None for the option's
    routing_key: str | None  # likewise
    message_id: str  # "" for none that is known
    why: str  # for people

    def __str__(self) -> str:
        parts = [self.row]
        if self.exchange is not None:
            parts.append(f"exchange {self.exchange!r}")
        if self.routing_key is not None:
            parts.append(f"routing key {self.routing_key!r}")
        if self.message_id:
            parts.append(f"message id {self.message_id!r}")
        return f"{', '.join(parts)}: {self.why}"


@dataclass
class Tally:
    """Outcome of rows."""

    published: int = 0  # that are safe, or were sent without confirms
    byte_count: int = 0  # of their payloads
    refused: int = 0  # that are not
    resent: int = 0  # that were sent again after a stream was lost
    named: list[Refusal] = field(default_factory=list)  # the first of those that were refused


class RowPublisher:
    """Publishes rows of one partition.

    Where a refusal fails the task, the first message of each route, up to SINK_ROUTES_PROVEN_MAX of
    them, is awaited before the next is sent: then no queue has had a later one, and when the reason
    is mended and the rows are written again, it is taken for the new message that it is, and not
    for a repetition.
    """

    def __init__(
        self,
        sender: Sender,
        offset: int | None,
        fails: bool,
        proves: bool,
        unconfirmed_max: int,  # of the sender
        of: str = "",
    ) -> None:
        self.tally = Tally()  # of what is answered
        self._sender = sender  # that is open
        # what makes a row's number the sequence by which the broker knows it again; None for no
        # sequences
        self._offset = offset
        self._of = of  # in what rows have their numbers, for errors
        self._fails = fails  # a refusal ends it; otherwise refused rows are counted
        self._proves = proves  # the first message of each route is awaited
        self._routes: set[tuple[str, str]] = set()
        self._pending: deque[tuple[Answer, Row]] = deque()
        self._pending_max = unconfirmed_max * _PENDING_FACTOR

    def publish(self, rows: Sequence[Row]) -> None:
        """Publish rows; returns when the broker has taken them, and they may not be safe yet.

        Args:
            rows: whose numbers ascend, from call to call as well.

        Raises:
            RowsRefusedError: rows were refused, and that fails the task.
            HeadraceError: the publisher failed.
        """
        start = 0
        for at, row in enumerate(rows):
            if self._proves and self._is_new(row):
                self._send(rows[start : at + 1])
                self._flush()
                self._reap()
                start = at + 1
        self._send(rows[start:])
        self._reap()

    def finish(self) -> Tally:
        """Wait until all rows are answered.

        Raises:
            RowsRefusedError: rows were refused, and that fails the task.
            HeadraceError: the publisher failed: it is not known what became of some rows.
        """
        self._flush()
        self._reap()
        self.tally.resent = self._sender.resent_count
        return self.tally

    def _is_new(self, row: Row) -> bool:
        message = row.message
        if message is None or len(self._routes) >= SINK_ROUTES_PROVEN_MAX:
            return False
        route = message.exchange, message.routing_key
        if route in self._routes:
            return False
        self._routes.add(route)
        return True

    def _send(self, rows: Sequence[Row]) -> None:
        messages = []
        good = []
        for row in rows:
            if row.message is None:
                self._note(row, row.problem)
                continue
            messages.append(row.message)
            good.append(row)
        if messages:
            offset = self._offset
            numbers = [row.number + offset for row in good] if offset is not None else None
            answers = self._sender.publish_all(messages, numbers)
            self._pending.extend(zip(answers, good, strict=True))

    def _flush(self) -> None:
        with contextlib.suppress(PublishRefusedError):  # of a row that `_reap` is about to find
            self._sender.flush()

    def _reap(self) -> None:
        """Count answers."""
        pending = self._pending
        while pending and pending[0][0].is_done:
            self._count(*pending.popleft())
        if len(pending) > self._pending_max:
            for _ in range(len(pending)):
                answer, row = pending.popleft()
                if answer.is_done:
                    self._count(answer, row)
                else:
                    pending.append((answer, row))
        if self._fails and self.tally.refused:
            self._give_up()

    def _give_up(self) -> None:
        """Say which rows were refused, once those that are on their way are answered."""
        self._flush()
        self._fails = False
        self._reap()
        raise RowsRefusedError(self.tally.refused, [str(each) for each in self.tally.named])

    def _count(self, answer: Answer, row: Row) -> None:
        error = answer.error
        if error is not None:
            self._note(row, str(error))
            return
        self.tally.published += 1
        if row.message is not None:
            self.tally.byte_count += len(row.message.body)

    def _note(self, row: Row, why: str) -> None:
        self.tally.refused += 1
        if len(self.tally.named) >= SINK_REFUSED_NAMED_MAX:
            return
        message = row.message or Message()
        exchange = message.exchange if message.HasField("exchange") else None
        key = message.routing_key if message.HasField("routing_key") else None
        known = message.properties.message_id
        self.tally.named.append(Refusal(f"row {row.number}{self._of}", exchange, key, known, why))
