"""Interface between the two ends of a session, on one node or across two."""

from __future__ import annotations

from abc import abstractmethod

from mypy_extensions import i64, mypyc_attr

from headrace_broker.core.queue.command.large_command import LargeCommand
from headrace_broker.model.definition import Queue
from headrace_broker.model.message import DeliveryRun


@mypyc_attr(allow_interpreted_subclasses=True)
class HostEnd:
    """Messages from a gateway to the replica that leads a queue."""

    @abstractmethod
    def command(self, session: int, data: bytes) -> None:
        """Replicate one encoded command; answered by the events of `SessionEnd`."""

    @abstractmethod
    def caused(self, session: int, data: bytes, causes: list[int]) -> None:
        """As `command`, of dead letters in an ENQUEUE, with those who are charged for them.

        Causes are: how many in a row, by which session (0 for nobody knows), and so on.
        """

    def large(self, session: int, command: LargeCommand, causes: list[int]) -> None:
        """As `command` and, where there are causes, `caused`, of an ENQUEUE that is large."""
        raise AssertionError("nobody sends this end large commands")

    def is_far(self) -> bool:
        """Return whether the replica is on another node, which is sent large commands in pieces."""
        return False

    @abstractmethod
    def resync(
        self,
        session: int,
        consumer: i64,
        number: i64,
        window: i64,
        attached: bool,
        filter_table: bytes,
    ) -> bool:
        """Start a feed anew at delivery `number` with `window` bytes of room; False when lost.

        `attached`: the queue has answered its attach before: if it does not know the consumer now,
        it has given it up and answers `detached`. The filter is not replicated: the leader has it
        from here, before the attach.
        """

    @abstractmethod
    def ask_deferred(self, session: int) -> bool:
        """Request `still_deferred`, or the leader; False when lost on the way."""

    @abstractmethod
    def window(self, session: int, consumer: i64, byte_count: i64) -> bool:
        """Give a consumer's feed more room. False: it was lost on the way."""


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionEnd:
    """Messages from the leading replica to a session at its gateway."""

    @abstractmethod
    def rejected(self, first: i64, last: i64, fenced: bool) -> None:
        """The publishes `first` to `last` were refused; comes before the `enqueued` over them.

        When `fenced`, their publisher has published under a later epoch since.
        """

    @abstractmethod
    def deferred(self, rows: list[int]) -> None:
        """Defer confirms of these publishes, which the next `enqueued` covers.

        The queue holds too much. They are given as in `Ranges.bounds`.
        """

    @abstractmethod
    def completed(self, rows: list[int]) -> None:
        """Publishes that were deferred are complete; rows in any order."""

    @abstractmethod
    def still_deferred(self, last: i64, rows: list[int]) -> None:
        """Replace the deferred confirms of publishes up to number `last` by these."""

    @abstractmethod
    def enqueued(self, first: i64, last: i64) -> None:
        """Every publish from `first` to `last` is applied, or was refused and told so before.

        Those before `first` may have been refused: their answer was another one.
        """

    @abstractmethod
    def controlled(self, number: i64, status: i64, count: i64) -> None:
        """The control command `number` is applied."""

    @abstractmethod
    def run(self, run: DeliveryRun) -> None:
        """Deliver."""

    @abstractmethod
    def got(self, number: i64, run: DeliveryRun | None, ready_left: i64) -> None:
        """The get `number` is applied."""

    @abstractmethod
    def gap(self, lane: i64, expected: i64) -> None:
        """Commands of `lane` before `expected` are missing: send again from there."""

    @abstractmethod
    def refused(self, leader: int, busy: bool, unknown: bool) -> None:
        """The replica asked does not lead, cannot take more now, or does not exist.

        When the one that leads names itself, something it said was lost on the way.
        """

    @abstractmethod
    def detached(self, consumer: i64) -> None:
        """The queue has given this consumer up: attach again."""

    @abstractmethod
    def timed_out(self, consumer: i64) -> None:
        """The queue has ended this consumer, for it held a delivery too long."""


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionTransport:
    """Carries the calls between nodes; what gets lost is made good by sending again."""

    @abstractmethod
    def host(self, target: int, group: int) -> HostEnd | None:
        """Return the queue's replica on node `target`, or None where it cannot be reached now."""

    @abstractmethod
    def session(self, session: int) -> SessionEnd | None:
        """Return the session's gateway end, or None where it is gone or cannot be reached now."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Gathering:
    """Sender of a session's gathered commands, in turns of the loop that its node chooses."""

    @abstractmethod
    def time_is_up(self) -> None:
        """Send the gathered commands now."""

    @abstractmethod
    def send_close(self) -> None:
        """End the session at the queue, unless the queue is gone meanwhile."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Copying:
    """A session's copy of large commands, made in several turns of the loop."""

    @abstractmethod
    def copy_some(self) -> bool:
        """Copy one turn's share; False once everything is copied."""


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionOwner:
    """The node, as its sessions see it."""

    @abstractmethod
    def locate(self, queue: Queue) -> int:
        """Return the node id that leads the queue as far as is known here, 0 for unknown."""

    @abstractmethod
    def machine_version(self, queue: Queue) -> int:
        """Return the newest machine version that all nodes with a replica of the queue know."""

    @abstractmethod
    def session_closed(self, session: int) -> None:
        """The queue has forgotten the session."""

    @abstractmethod
    def monotonic_ms(self) -> i64:
        """Return a time that only goes forward."""

    @abstractmethod
    def send_later(self, gathering: Gathering) -> None:
        """Say soon that its time is up, together with that of others."""

    def copy_in_turns(self, copying: Copying) -> None:
        """Call `copy_some` turn after turn until nothing is left."""
        while copying.copy_some():
            pass

    @abstractmethod
    def close_in_turn(self, closing: Gathering) -> None:
        """Send a session's CLOSE, now or in a later turn of the loop."""
