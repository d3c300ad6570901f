"""A publisher's messages between the application and the broker: no I/O, no clock.

Messages are accepted as far as the broker's window and the client's own bounds go, sent in batches,
kept until they are answered, and sent again on the next stream when one is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from headrace_client.confirm import Confirm
from headrace_client.error import HeadraceError, PublishRefusedError, UnroutableError, code_name
from headrace_client.limits import (
    REFUSALS_KEPT_MAX,
    UNCONFIRMED_BYTES_MAX,
    UNCONFIRMED_MESSAGES_MAX,
    UNSENT_BYTES_MAX,
    UNSENT_MESSAGES_MAX,
)
from headrace_client.message_bytes import publish_request
from headrace_protos.broker.v1.message_pb2 import Range
from headrace_protos.broker.v1.messaging_pb2 import PublishOpened, Refused, Returned, Window

SEQUENCE_BYTES: Final = 11  # of a batch's first sequence as it is encoded, at most


class Entry(Confirm):
    """A message that was accepted: what its publisher holds of it, with what is sent.

    It is one object, because those that live as long as a window of messages are what Python's
    garbage collector costs most for.
    """

    __slots__ = ("element", "returned", "size")

    def __init__(self, element: bytes, sequence: int) -> None:
        super().__init__(sequence)
        self.element = element  # as it is in a batch; empty once it is answered
        self.size = len(element)
        # what was told of a mandatory message that reached no queue
        self.returned: HeadraceError | None = None


class PublishBuffer:
    """See the module."""

    def __init__(
        self,
        confirms: bool = True,
        named: bool = False,
        messages_max: int = UNCONFIRMED_MESSAGES_MAX,
        bytes_max: int = UNCONFIRMED_BYTES_MAX,
    ) -> None:
        # what the broker allows on this stream, None while there is none
        self.window: Window | None = None
        self.bytes_in = 0  # of messages that are accepted and not answered
        self.resent_count = 0  # messages that were sent again
        # confirms of messages that were refused, as long as nobody has asked about them
        self.refused: list[Confirm] = []
        self.refused_count = 0  # of all refused messages
        # every message is answered; otherwise it is forgotten as soon as it is written
        self._confirms = confirms
        # messages have the sequence of their confirms on every stream, so that the broker knows one
        # again; otherwise each stream numbers anew
        self._named = named
        self._messages_max = messages_max  # of messages that are not answered
        self._bytes_max = bytes_max  # of these
        self._unsent: deque[Entry] = deque()
        self._unsent_bytes = 0
        self._sent: dict[int, Entry] = {}  # by the stream's sequence, ascending
        self._next_sequence = 1
        self._sent_messages = 0
        self._sent_bytes = 0
        self._batch_messages_max = 1
        self._batch_bytes_max = 0

    # Accepting

    def __len__(self) -> int:
        """Return how many messages are accepted and not answered."""
        return len(self._unsent) + len(self._sent)

    def has_room(self, size: int) -> bool:
        """Return whether a message of a size would be accepted."""
        window = self.window
        if window is None:
            return False
        unsent = len(self._unsent)
        count = unsent + len(self._sent)
        if count and (
            count >= self._messages_max
            or self.bytes_in + size > self._bytes_max
            or unsent >= UNSENT_MESSAGES_MAX
        ):
            return False
        if self._sent_messages + unsent >= window.messages:
            return False
        ahead = self._sent_bytes + self._unsent_bytes
        if unsent:
            fits = ahead + size + SEQUENCE_BYTES <= window.octets
            return fits and self._unsent_bytes + size <= UNSENT_BYTES_MAX
        return ahead < window.octets  # one goes whatever its size

    def add(self, entry: Entry) -> None:
        """Accept a message for which there is room."""
        self._unsent.append(entry)
        self._unsent_bytes += entry.size
        self.bytes_in += entry.size

    def withdraw(self, entry: Entry) -> bool:
        """Take a message back; False when it was sent already."""
        if entry.is_done or entry not in self._unsent:
            return False
        self._unsent.remove(entry)
        self._unsent_bytes -= entry.size
        self.bytes_in -= entry.size
        return True

    # Streams

    def opened(self, opened: PublishOpened) -> None:
        """A stream has begun."""
        self.window = opened.window
        self._next_sequence = max(opened.next_sequence, 1)
        self._sent_messages = self._sent_bytes = 0
        self._batch_messages_max = max(opened.batch_messages_max, 1)
        self._batch_bytes_max = opened.batch_octets_max

    def lost(self) -> None:
        """Note the loss of a stream: unanswered messages are resent, before everything else."""
        self.window = None
        again = list(self._sent.values())
        self._sent.clear()
        for entry in again:
            entry.resent = True
            entry.returned = None
        self.resent_count += len(again)
        self._unsent.extendleft(reversed(again))
        self._unsent_bytes += sum(entry.size for entry in again)

    def renew(self, window: Window) -> None:
        """The broker allows something else."""
        self.window = window

    def next_request(self) -> bytes | None:
        """Return a request with what may be sent now, None for nothing; it counts as sent."""
        entries = self._fitting()
        if not entries:
            return None
        first = entries[0].sequence if self._named else self._next_sequence
        request, byte_count = publish_request(first, [entry.element for entry in entries])
        self._next_sequence = first + len(entries)
        self._sent_messages += len(entries)
        self._sent_bytes += byte_count
        if self._confirms:
            self._sent.update(enumerate(entries, first))
        else:
            for entry in entries:
                self._forget(entry)
        return request

    def _fitting(self) -> list[Entry]:
        """Take the first messages that make a batch which fits the window."""
        found: list[Entry] = []
        window = self.window
        if window is None:
            return found
        byte_count = self._sent_bytes + SEQUENCE_BYTES
        bytes_max, batch_bytes_max = window.octets, self._sent_bytes + self._batch_bytes_max
        most = min(self._batch_messages_max, window.messages - self._sent_messages)
        last = 0
        while self._unsent and len(found) < most:
            entry = self._unsent[0]
            byte_count += entry.size
            if found and (byte_count > bytes_max or byte_count > batch_bytes_max):
                break
            if byte_count > bytes_max and self._sent_bytes >= bytes_max:
                break
            if found and self._named and entry.sequence != last + 1:
                break  # what lay between was answered on an earlier stream
            self._unsent.popleft()
            self._unsent_bytes -= entry.size
            last = entry.sequence
            found.append(entry)
        return found

    # Answers

    def confirmed(self, ranges: Iterable[Range]) -> None:
        """Messages are safe."""
        for entry in self._answered(ranges):
            self._settle(entry, entry.returned)

    def refused_by(self, answer: Refused) -> None:
        """Messages are refused."""
        for entry in self._answered(answer.ranges):
            self._settle(entry, _refusal(answer))
        if not self._confirms:
            self._refused_unknown(_refusal(answer))

    def returned(self, answer: Returned) -> None:
        """A mandatory message reached no queue."""
        error = UnroutableError(answer.text, "NOT_FOUND", "NO_ROUTE")
        entry = self._sent.get(answer.sequence)
        if entry is not None:
            entry.returned = error
        elif not self._confirms:
            self._refused_unknown(error)

    def fail(self, error: HeadraceError) -> None:
        """Stop sending: all unanswered messages fail, as far as is known."""
        self.window = None
        for entry in [*self._sent.values(), *self._unsent]:
            self._forget(entry, error)
        self._sent.clear()
        self._unsent.clear()
        self._unsent_bytes = 0

    def take_refused(self) -> list[Confirm]:
        """Return the refused messages without a waiter, and forget them."""
        found, self.refused = self.refused, []
        return [confirm for confirm in found if not confirm.is_seen]

    def _answered(self, ranges: Iterable[Range]) -> Iterator[Entry]:
        for each in ranges:
            if each.last - each.first < len(self._sent):
                numbers: Iterable[int] = range(each.first, each.last + 1)
            else:  # more than can be meant
                numbers = [number for number in self._sent if each.first <= number <= each.last]
            for number in numbers:
                entry = self._sent.pop(number, None)
                if entry is not None:
                    yield entry

    def _settle(self, entry: Entry, error: HeadraceError | None) -> None:
        self._forget(entry, error)
        if error is not None:
            self._note(entry)

    def _forget(self, entry: Entry, error: HeadraceError | None = None) -> None:
        self.bytes_in -= entry.size
        entry.element = b""
        entry.settle(error)

    def _refused_unknown(self, error: HeadraceError) -> None:
        confirm = Confirm(0)
        confirm.settle(error)
        self._note(confirm)

    def _note(self, confirm: Confirm) -> None:
        self.refused_count += 1
        if len(self.refused) >= REFUSALS_KEPT_MAX:
            self.refused = [each for each in self.refused if not each.is_seen]
        if len(self.refused) < REFUSALS_KEPT_MAX:
            self.refused.append(confirm)


def _refusal(answer: Refused) -> PublishRefusedError:
    error = PublishRefusedError(answer.text, code_name(answer.code), answer.reason)
    error.limit = answer.limit
    return error
