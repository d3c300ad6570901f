"""Admission of one publisher's publishes: each passes, waits or is refused."""

from __future__ import annotations

import logging
from typing import Final, final

from mypy_extensions import i64, trait
from typing_extensions import override

from headrace_broker.flow.activity import Activity
from headrace_broker.flow.credit import Credit
from headrace_broker.flow.gate import Gate
from headrace_broker.gateways.publishing.admission_control import AdmissionControl, WaitingPublisher
from headrace_broker.gateways.publishing.command import BufferedInput
from headrace_broker.gateways.publishing.link import Link
from headrace_broker.gateways.publishing.publish_buffer import PublishBuffer
from headrace_broker.gateways.publishing.publisher import NOTHING, Publisher, Run
from headrace_broker.model.flow import (
    LIMIT_ACCOUNT,
    LIMIT_COMMANDS,
    LIMIT_CREDIT,
    LIMIT_INTAKE,
    LIMIT_WATERMARK,
    NO_LIMIT,
)
from headrace_broker.model.message import Publish
from headrace_broker.model.reply_code import AmqpError

_LOG: Final = logging.getLogger("headrace.connection")

PASS: Final = 0  # it goes to its queues
WAIT: Final = 1  # a gate on its way is closed
REFUSE: Final = 2  # something is wrong with it


@trait
class InputOwner:
    """The channel or stream whose inputs are admitted."""

    @property
    def is_busy(self) -> bool:
        """True while an operation is awaited: nothing is handled meanwhile."""
        raise AssertionError("abstract")

    @property
    def is_open(self) -> bool:
        """True while it may be used."""
        raise AssertionError("abstract")

    def resume(self, waiting: BufferedInput, served: bool) -> None:
        """Handle a buffered input, or have it put back.

        Args:
            waiting: the oldest.
            served: the gate at which it stood has called.
        """
        raise AssertionError("abstract")

    def crash(self) -> None:
        """Close the connection for the exception being handled."""
        raise AssertionError("abstract")


@final
class _Nobody(InputOwner):
    """Owner of the inputs of a channel that is closed."""

    @property
    @override
    def is_busy(self) -> bool:
        return False

    @property
    @override
    def is_open(self) -> bool:
        return False


_NOBODY: Final = _Nobody()


@final
class PublishAdmission(WaitingPublisher):
    """Lets publishes of a channel or stream go to their queues, and keeps those that may not yet.

    A publish passes what stops its connection (`AdmissionControl`), the channel's credit, and the
    gate of each of its queues. The first that stops it wakes it by `go_on` or `admit`.
    """

    def __init__(self, control: AdmissionControl, owner: InputOwner, publisher: Publisher) -> None:
        super().__init__(control.account, Activity(control.now_us()))
        self.buffer = PublishBuffer(control)  # what waits
        self._control = control
        self._owner = owner
        self._gate: Gate | None = None  # at which it waits
        self._closed: Gate | None = None  # at which `_pass_runs` stopped
        self._joined = False
        self._moved = False
        self._stopped = False  # the input that was handled last was put back
        self._bytes_back: i64 = 0
        self.begin(publisher)

    def begin(self, publisher: Publisher) -> None:
        """Admit publishes for a channel that was opened; what waits stays."""
        self.publisher = publisher  # knows where publishes go
        # publishes that it may hand over; deferred while a queue is congested
        self.credit = Credit(self._control.flow_limits)
        self._congested: dict[int, Link] = {}  # by group, the first one first

    # In

    def publish(
        self, publishes: list[Publish], served: bool = False, current: bool = False
    ) -> list[Publish]:
        """Pass on publishes with one route and the same flags; keep what has to wait.

        Args:
            publishes: at least one.
            served: they stood at a gate, and it has called.
            current: this node's view of the catalog is up to date. If it need not be, what finds
                no exchange or no queue is left, and so is all behind it.

        Returns:
            What is left, to be published once the view is up to date.

        Raises:
            AmqpError: as `Publisher.refuse`; those before what it refuses have passed.
        """
        collects = self.publisher.collects
        if not collects and not self.admits(publishes, served):
            return NOTHING
        left = self._pass_runs(publishes, served, current, collects)
        gate = self._closed
        if gate is None:
            return left
        self._wait_at(left, gate)
        return NOTHING

    def admits(self, event: BufferedInput, served: bool) -> bool:
        """Return whether no limit but those of queues stops an input; one that is stopped is kept.

        Args:
            event: publishes, or a command that has to wait as they do.
            served: it stood at a gate, and that has called.
        """
        control = self._control
        limit = control.limit(served)
        if limit == NO_LIMIT:
            if self.credit.is_left():
                return True
            limit = LIMIT_COMMANDS if self._congested else LIMIT_CREDIT
        if limit == LIMIT_INTAKE:
            self._wait_at(event, control.intake.gate)
            return False
        self._put_back(event)
        group: i64 = 0
        if limit == LIMIT_ACCOUNT:
            group = control.deepest()
        elif limit == LIMIT_COMMANDS:
            group = next(iter(self._congested))
        self.stop(limit, group)
        return False

    def hold(self, event: BufferedInput) -> None:
        """Keep an input behind those that are stopped."""
        self._join()
        self.buffer.hold(event)

    def _pass_runs(
        self,
        publishes: list[Publish],
        served: bool,
        current: bool,
        collects: bool,
        force: bool = False,
    ) -> list[Publish]:
        """Pass on publishes run by run, and return what is left.

        That waits at `_closed`, or where this is None, for the catalog. Where a transaction
        `collects`, no gate stops them; with `force` only those that are overdrawn do.
        """
        self._closed = None
        publisher = self.publisher
        run = publisher.run
        at: i64 = 0
        count: i64 = len(publishes)
        try:
            while at < count:
                if at > 0 and not (collects or force) and self._is_spent():
                    break
                publisher.prepare(publishes, at, current)
                if run.lost:
                    break
                verdict = PASS if collects and run.error is None else self._judge(served, force)
                if verdict == WAIT:
                    break
                if verdict == PASS:
                    self._pass(run, collects)
                if run.error is not None:
                    publisher.refuse(run)
                at = run.stop
        finally:
            run.forget()
        if at == count:
            return NOTHING
        return publishes[at:] if at > 0 else publishes

    def _judge(self, served: bool, force: bool) -> i64:
        """Return whether the run that is prepared is to PASS, WAIT (at `_closed`), or REFUSE."""
        publisher = self.publisher
        run = publisher.run
        if run.error is not None:
            return REFUSE
        try:
            for queue in run.route.queues:
                gate = publisher.links.open(queue).client.gate
                if gate.is_open or (served and gate.room) or (force and not gate.overdrawn):
                    continue
                self._closed = gate
                return WAIT
        except AmqpError as error:  # the node has yet to join its cluster
            run.error = error
            return REFUSE
        return PASS

    def _is_spent(self) -> bool:
        """Return whether the turn's budget is spent: a run may be compared with many bindings."""
        gate = self._control.intake.gate
        if gate.room:
            return False
        self._closed = gate
        return True

    def _pass(self, run: Run, collects: bool) -> None:
        """Hand a run to its queues, and charge for it; set its error where it cannot go."""
        control = self._control
        control.published(run.ready)
        if collects:
            self._hand_out(run)
            return
        count: i64 = len(run.ready)
        credit = self.credit
        credit.spend(count)
        owed = control.account.byte_count
        self._hand_out(run)
        control.intake.take(count, control.account.byte_count - owed)
        credit.passed_on(count)

    def _hand_out(self, run: Run) -> None:
        publisher = self.publisher
        try:
            publisher.hand_out(run)
        except AmqpError as error:
            run.error = error
        finally:
            if publisher.full:
                full = publisher.full
                publisher.full = []
                for link in full:
                    if link.congested:  # it may have been relieved meanwhile
                        self.congest(link)

    def congest(self, link: Link) -> None:
        """Grant no credit until `relieve` was called for this link."""
        link.congested = True
        group = link.client.queue.group
        if self._congested.get(group) is not link:
            self._congested[group] = link
            self.credit.defer(True)

    def relieve(self, link: Link) -> None:
        """Take back `congest`; a link that is not congested is ignored."""
        link.congested = False
        group = link.client.queue.group
        if self._congested.get(group) is link:
            del self._congested[group]
            if not self._congested:
                self.credit.defer(False)
                self._control.wake()

    # What stops it

    def _put_back(self, event: BufferedInput) -> None:
        self._join()
        self._stopped = True
        self._bytes_back = self.buffer.put_back(event)

    def _wait_at(self, event: BufferedInput, gate: Gate) -> None:
        self._put_back(event)
        self.stop(gate.limit, gate.group)
        self._gate = gate
        gate.wait(self)

    def _join(self) -> None:
        if not self._joined:
            self._joined = True
            self._moved = True
            self._control.join(self)

    @override
    def stop(self, limit: i64, group: i64) -> None:
        """Note the limit that holds the first buffered publish; its end wakes the buffer."""
        self._leave_gate()
        flow = self.flow
        if flow.limit != limit or flow.group != group:
            flow.stop(limit, group, self._control.now_us())
            self._control.show()

    def defer(self, group: i64) -> None:
        """Note the queue that has deferred confirms for longest, 0 for none."""
        if group != self.deferred_by:
            self.deferred_by = group
            if not self._joined:
                self._rest()
            self._control.defer(self)

    def _rest(self) -> None:
        """Show deferred confirms as the limit, or none: nothing is buffered."""
        if self.deferred_by != 0:
            self.flow.stop(LIMIT_WATERMARK, self.deferred_by, self._control.now_us())
        elif self.flow.limit != NO_LIMIT:
            self.flow.go(self._control.now_us())

    def _leave_gate(self) -> None:
        if self._gate is not None:
            self._gate.leave(self)
            self._gate = None

    # Going on

    @override
    def go_on(self) -> None:
        """Pass on the first row, unless it waits at a gate."""
        if self._gate is None:
            self._pass_on(1 << 62, False)

    @override
    def admit(self, byte_count: i64) -> i64:
        gate = self._gate
        self._gate = None
        gone: i64 = 0
        try:
            gone = self._pass_on(byte_count, True)
        except Exception:  # noqa: BLE001 - only this connection ends
            self._owner.crash()
        holds = self.buffer.is_holding and not self._stopped and not self._owner.is_busy
        if holds and gate is not None:
            self._gate = gate  # it had its share for now
            gate.wait(self)
        return gone

    def _pass_on(self, byte_count: i64, served: bool) -> i64:
        """Handle inputs, the oldest first, until one is put back."""
        gone: i64 = 0
        buffer = self.buffer
        while buffer.is_holding and not self._owner.is_busy:
            if gone >= byte_count and self._owner.is_open:
                break
            if self._control.is_spent and not isinstance(buffer.first(), list):
                self._control.wake()  # commands wait for another turn
                break
            self._stopped = False
            self._bytes_back = 0
            held = buffer.take_first()
            self._owner.resume(held.event, served)
            gone += held.byte_count - self._bytes_back
            if self._stopped:
                break
        if gone > 0:
            self._moved = True
            self._control.moved = True
        self._settle()
        return gone

    def _settle(self) -> None:
        """Leave the admission control once the first row is empty."""
        if self._joined and not self.buffer.is_holding:
            self._joined = False
            self._leave_gate()
            self._rest()
            self._control.leave(self)

    # The end

    def retire(self) -> bool:
        """Drop the reference to a channel that is gone; False where inputs still wait for it."""
        if self.buffer.is_holding or self.buffer.waits_behind:
            return False
        self._owner = _NOBODY
        return True

    @override
    def poll(self) -> bool:
        """Close the channel if nothing has moved since the last look; else return True."""
        if not self.buffer.closes:
            return False
        if self._moved or self._owner.is_busy:  # an operation ends by itself
            self._moved = False
            return True
        self.release()
        return False

    def clear(self) -> None:
        """Drop everything that waits."""
        self.buffer.clear()
        self._settle()

    def release(self) -> None:
        """Hand over publishes as far as may be, and drop the others: the channel is to end.

        What comes behind another method depends on it and is dropped, and so is what waits behind
        an operation, or is held while one is awaited: it may depend on that. The other inputs stay,
        and are handled at the end of the turn.
        """
        control = self._control
        try:
            self._force()
        except AmqpError as error:
            _LOG.info("%s: buffered publishes discarded: %s", control.name, error)
        except Exception:  # noqa: BLE001 - only this connection ends; others may stand at its gate
            _LOG.exception("%s: while handing over buffered publishes", control.name)
        void = not self._owner.is_open
        dropped = self.buffer.drop_publishes()
        if dropped.messages > 0 and not void:
            control.drop(dropped.messages)
            text = "%s: %d publishes that were held are dropped, for their channel ends"
            _LOG.warning(text, control.name, int(dropped.messages))
        self._leave_gate()
        self._settle()
        control.wake()

    def _force(self) -> None:
        """Hand over publishes whatever stops them, up to the first that is not all handed over."""
        owner, buffer = self._owner, self.buffer
        while buffer.is_holding and not owner.is_busy and self._control.has_room(buffer.byte_count):
            event = buffer.first()
            if not isinstance(event, list) or not owner.is_open or self.publisher.collects:
                break
            if self._pass_runs(event, False, True, False, force=True):
                break
            buffer.take_first()
