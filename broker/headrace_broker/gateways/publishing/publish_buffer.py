"""Buffer of a channel's inputs: stopped publishes, and everything behind them."""

from __future__ import annotations

import logging
from collections import deque
from typing import Final, final

from mypy_extensions import i64, trait
from typing_extensions import override

from headrace_broker.flow.activity import Activity
from headrace_broker.flow.gate import Gate
from headrace_broker.gateways.publishing.admission_control import AdmissionControl, WaitingPublisher
from headrace_broker.gateways.publishing.command import (
    BARRIER,
    OVERTAKES_ALL,
    OVERTAKES_PUBLISHES,
    BufferedInput,
)
from headrace_broker.gateways.publishing.links import Links
from headrace_broker.model.flow import (
    LIMIT_ACCOUNT,
    LIMIT_COMMANDS,
    LIMIT_CREDIT,
    LIMIT_INTAKE,
    LIMIT_WATERMARK,
    NO_LIMIT,
)
from headrace_broker.model.limits import CHANNEL_COMMANDS_MAX
from headrace_broker.model.message import Publish
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.session.lane import message_cost

_LOG: Final = logging.getLogger("headrace.connection")


@trait
class BufferOwner:
    """The channel or stream that a buffer belongs to."""

    @property
    def is_busy(self) -> bool:
        """True while an operation is awaited: nothing is handled meanwhile."""
        raise AssertionError("abstract")

    @property
    def is_open(self) -> bool:
        """True while it may be used."""
        raise AssertionError("abstract")

    def resume(self, waiting: BufferedInput, served: bool) -> None:
        """Handle a buffered input, or put it back.

        Args:
            waiting: the oldest.
            served: the gate at which it stood has called.
        """
        raise AssertionError("abstract")

    def force(self, publishes: list[Publish]) -> bool:
        """Publish what cannot wait; False where that is void, or not all of it goes.

        Raises:
            AmqpError: it would have closed the channel.
        """
        raise AssertionError("abstract")

    def crash(self) -> None:
        """Close the connection for the exception being handled."""
        raise AssertionError("abstract")


@final
class _Nobody(BufferOwner):
    """Owner of a buffer whose channel is closed."""

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
class BufferedEntry:
    """An input that waits.

    Attributes:
        event: a list of publishes, or something else.
        messages: how many publishes.
        octets: their cost, see `message_cost`.
        command_octets: of a command.
    """

    def __init__(
        self, event: BufferedInput, messages: i64, octets: i64, command_octets: i64 = 0
    ) -> None:
        self.event = event
        self.messages = messages
        self.octets = octets
        self.command_octets = command_octets


def _held(event: BufferedInput) -> BufferedEntry:
    if not isinstance(event, list):
        return BufferedEntry(event, 0, 0, event.octets)
    octets: i64 = 0
    for publish in event:
        octets += message_cost(publish)
    return BufferedEntry(event, len(event), octets)


@final
class PublishBuffer(WaitingPublisher):
    """Inputs of one channel that wait, in two rows.

    The first begins with publishes that a limit stops; the second waits for an operation.

    Attributes:
        messages: publishes in both rows.
        octets: the same in octets.
    """

    def __init__(self, admission: AdmissionControl, owner: BufferOwner, flow: Activity) -> None:
        super().__init__(admission.account, flow)
        self.messages: i64 = 0
        self.octets: i64 = 0
        self._admission = admission
        self._owner = owner
        self._held: deque[BufferedEntry] = deque()  # begins with publishes that are stopped
        self._behind: deque[BufferedEntry] = deque()  # behind an operation; younger than those
        self._gate: Gate | None = None
        self._commands_ahead: i64 = 0  # in the first row
        self._barriers: i64 = 0  # of these, those that nothing may overtake
        self._commands: i64 = 0  # in both rows
        self._stalled = False
        self._joined = False
        self._moved = False
        self._closes = False
        self._stopped = False  # the input that was handled last was put back
        self._octets_back: i64 = 0
        self._aside = BufferedEntry([], 0, 0)

    @property
    def is_holding(self) -> bool:
        """True if a limit stops the channel."""
        return len(self._held) > 0

    @property
    def waits_behind(self) -> bool:
        """True while anything waits behind an operation."""
        return len(self._behind) > 0

    # In

    def hold(self, event: BufferedInput) -> None:
        """Append an input to the first row."""
        self._put(_held(event), self._held, False)

    def put_back(self, event: BufferedInput, limit: i64, links: Links) -> None:
        """Put an input back at the head of the first row, stopped by a limit of the channel."""
        if limit == LIMIT_INTAKE:
            self.put_back_at(event, self._admission.intake.gate)
            return
        self._put_first(event)
        group: i64 = 0
        if limit == LIMIT_ACCOUNT:
            group = self._admission.deepest()
        elif limit == LIMIT_COMMANDS:
            group = links.congested_group
        self.stop(limit, group)

    def put_back_at(self, event: BufferedInput, gate: Gate) -> None:
        """Put an input back at the head of the first row, and wait at a gate."""
        self._put_first(event)
        self.stop(gate.limit, gate.group)
        self._gate = gate
        gate.wait(self)

    def _put_first(self, event: BufferedInput) -> None:
        held = _held(event)
        self._put(held, self._held, True)
        self._stopped = True
        self._octets_back = held.octets

    def set_aside(self, publishes: list[Publish]) -> None:
        """Count publishes that the caller keeps until `take_aside`."""
        self._aside = _held(publishes)
        self._reckon(self._aside, 1)

    def take_aside(self) -> None:
        """Stop counting them; does nothing the second time."""
        aside = self._aside
        self._aside = BufferedEntry([], 0, 0)
        if aside.messages > 0:
            self._reckon(aside, -1)

    def wait(self, event: BufferedInput) -> None:
        """Append an input to the second row, behind the operation that is awaited."""
        self._put(_held(event), self._behind, False)

    def _put(self, held: BufferedEntry, row: deque[BufferedEntry], first: bool) -> None:
        if row is self._held:
            if not self._joined:
                self._joined = True
                self._moved = True
                self._admission.join(self)
            self._count(held.event, 1)
        if first:
            row.appendleft(held)
        else:
            row.append(held)
        self._reckon(held, 1)

    def _count(self, event: BufferedInput, sign: i64) -> None:
        if isinstance(event, list):
            return
        self._commands_ahead += sign
        if event.order == BARRIER:
            self._barriers += sign
            if event.closes:
                self._closes = sign > 0
                self._admission.watch_closing()

    def _reckon(self, held: BufferedEntry, sign: i64) -> None:
        if held.messages > 0:
            self.messages += sign * held.messages
            self.octets += sign * held.octets
            self._admission.hold(sign * held.messages, sign * held.octets)
            return
        self._commands += sign
        self._admission.hold_command(sign * held.command_octets)
        if self._stalled:
            stalled = self._commands > CHANNEL_COMMANDS_MAX // 2
        else:
            stalled = self._commands >= CHANNEL_COMMANDS_MAX
        if stalled != self._stalled:
            self._stalled = stalled
            self._admission.stall(stalled)

    # Out

    def may_pass(self, order: i64) -> bool:
        """Return whether an input of this order may overtake the first row."""
        if self._barriers > 0:
            return False
        return order == OVERTAKES_ALL or (
            order == OVERTAKES_PUBLISHES and self._commands_ahead == 0
        )

    def _take_first(self) -> BufferedEntry:
        held = self._held.popleft()
        self._count(held.event, -1)
        self._reckon(held, -1)
        return held

    def take_behind(self) -> BufferedInput | None:
        """Take the oldest input of the second row, None when there is none."""
        if not self._behind:
            return None
        held = self._behind.popleft()
        self._reckon(held, -1)
        return held.event

    def drop_publishes(self) -> BufferedEntry:
        """Drop all publishes, and return their counts."""
        dropped = BufferedEntry([], self.messages, self.octets)
        for row in (self._held, self._behind):
            for _ in range(len(row)):
                held = row.popleft()
                if held.messages > 0:
                    self._reckon(held, -1)
                else:
                    row.append(held)
        return dropped

    def clear(self) -> None:
        """Drop everything."""
        while self._held:
            self._take_first()
        while self._behind:
            self.take_behind()
        self.take_aside()
        self._settle()

    # Limits

    def limit(self, links: Links, served: bool) -> i64:
        """Return the limit other than a queue's that stops the channel now, NO_LIMIT for none."""
        limit = self._admission.limit(served)
        if limit != NO_LIMIT or links.credit.is_left():
            return limit
        return LIMIT_COMMANDS if links.congested_group else LIMIT_CREDIT

    @override
    def stop(self, limit: i64, group: i64) -> None:
        """Note the limit that stops the first row; it wakes the buffer itself."""
        self._leave_gate()
        flow = self.flow
        if flow.limit != limit or flow.group != group:
            flow.stop(limit, group, self._admission.now_us())
            self._admission.show()

    def withhold(self, group: i64) -> None:
        """Note the queue that has deferred confirms for longest, 0 for none."""
        if group != self.withheld_by:
            self.withheld_by = group
            if not self._joined:
                self._rest()
            self._admission.withhold(self)

    def _rest(self) -> None:
        """Show deferred confirms as the limit, or none: nothing is buffered."""
        if self.withheld_by != 0:
            self.flow.stop(LIMIT_WATERMARK, self.withheld_by, self._admission.now_us())
        elif self.flow.limit != NO_LIMIT:
            self.flow.go(self._admission.now_us())

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
    def admit(self, octets: i64) -> i64:
        gate = self._gate
        self._gate = None
        gone: i64 = 0
        try:
            gone = self._pass_on(octets, True)
        except Exception:  # noqa: BLE001 - only this connection ends
            self._owner.crash()
        if self._held and gate is not None and not self._stopped and not self._owner.is_busy:
            self._gate = gate  # it had its share for now
            gate.wait(self)
        return gone

    def _pass_on(self, octets: i64, served: bool) -> i64:
        """Handle inputs, the oldest first, until one is put back."""
        gone: i64 = 0
        while self._held and not self._owner.is_busy:
            if gone >= octets and self._owner.is_open:
                break
            if self._admission.is_spent and not isinstance(self._held[0].event, list):
                self._admission.wake()  # commands wait for another turn
                break
            self._stopped = False
            self._octets_back = 0
            held = self._take_first()
            self._owner.resume(held.event, served)
            gone += held.octets - self._octets_back
            if self._stopped:
                break
        if gone > 0:
            self._moved = True
            self._admission.moved = True
        self._settle()
        return gone

    def _settle(self) -> None:
        """Leave the admission control once the first row is empty."""
        if self._joined and not self._held:
            self._joined = False
            self._leave_gate()
            self._rest()
            self._admission.leave(self)

    # The end

    def retire(self) -> bool:
        """Drop the reference to a channel that is gone; False where inputs still wait for it."""
        if self._held or self._behind:
            return False
        self._owner = _NOBODY
        return True

    @override
    def look(self) -> bool:
        """Close the channel if nothing has moved since the last look; else return True."""
        if not self._closes:
            return False
        if self._moved or self._owner.is_busy:  # an operation ends by itself
            self._moved = False
            return True
        self.let_go()
        return False

    def let_go(self) -> None:
        """Hand over publishes as far as may be, and drop the others: the channel is to end.

        What comes behind another method depends on it and is dropped, and so is what waits behind
        an operation, or is held while one is awaited: it may depend on that. The other inputs stay,
        and are handled at the end of the turn.
        """
        admission = self._admission
        try:
            while self._held and not self._owner.is_busy and admission.has_room(self.octets):
                event = self._held[0].event
                if not isinstance(event, list) or not self._owner.force(event):
                    break
                self._take_first()
        except AmqpError as error:
            _LOG.info("%s: buffered publishes discarded: %s", admission.name, error)
        except Exception:  # noqa: BLE001 - only this connection ends; others may stand at its gate
            _LOG.exception("%s: while handing over buffered publishes", admission.name)
        void = not self._owner.is_open
        dropped = self.drop_publishes()
        if dropped.messages > 0 and not void:
            admission.drop(dropped.messages, dropped.octets)
            text = "%s: %d publishes that were held are dropped, for their channel ends"
            _LOG.warning(text, admission.name, int(dropped.messages))
        self._leave_gate()
        self._settle()
        admission.wake()
