"""Buffer of a channel's inputs: stopped publishes, and everything behind them."""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64

from headrace_broker.gateways.publishing.admission_control import AdmissionControl
from headrace_broker.gateways.publishing.command import (
    BARRIER,
    OVERTAKES_ALL,
    OVERTAKES_PUBLISHES,
    BufferedInput,
)
from headrace_broker.model.limits import CHANNEL_COMMANDS_MAX
from headrace_broker.model.message import Publish
from headrace_broker.runtime.session.lane import message_cost


@final
class BufferedEntry:
    """An input that waits."""

    def __init__(
        self, event: BufferedInput, messages: i64, byte_count: i64, command_bytes: i64 = 0
    ) -> None:
        self.event = event  # a list of publishes, or something else
        self.messages = messages  # how many publishes
        self.byte_count = byte_count  # their cost, see `message_cost`
        self.command_bytes = command_bytes


def _held(event: BufferedInput) -> BufferedEntry:
    if not isinstance(event, list):
        return BufferedEntry(event, 0, 0, event.byte_count)
    byte_count: i64 = 0
    for publish in event:
        byte_count += message_cost(publish)
    return BufferedEntry(event, len(event), byte_count)


@final
class PublishBuffer:
    """Inputs of one channel that wait, in two rows.

    The first begins with publishes that a limit stops; the second waits for an operation.
    """

    def __init__(self, control: AdmissionControl) -> None:
        self.messages: i64 = 0  # publishes in both rows
        self.byte_count: i64 = 0  # the same in bytes
        self.closes = False  # an input that ends the channel stands in the first row
        self._control = control
        self._held: deque[BufferedEntry] = deque()  # begins with publishes that are stopped
        self._behind: deque[BufferedEntry] = deque()  # behind an operation; younger than those
        self._commands_ahead: i64 = 0  # in the first row
        self._barriers: i64 = 0  # of these, those that nothing may overtake
        self._commands: i64 = 0  # in both rows
        self._stalled = False
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
        held = _held(event)
        self._held.append(held)
        self._count(event, 1)
        self._reckon(held, 1)

    def put_back(self, event: BufferedInput) -> i64:
        """Put an input back at the head of the first row, and return the cost of its publishes."""
        held = _held(event)
        self._held.appendleft(held)
        self._count(event, 1)
        self._reckon(held, 1)
        return held.byte_count

    def wait(self, event: BufferedInput) -> None:
        """Append an input to the second row, behind the operation that is awaited."""
        held = _held(event)
        self._behind.append(held)
        self._reckon(held, 1)

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

    def _count(self, event: BufferedInput, sign: i64) -> None:
        if isinstance(event, list):
            return
        self._commands_ahead += sign
        if event.order == BARRIER:
            self._barriers += sign
            if event.closes:
                self.closes = sign > 0
                self._control.watch_closing()

    def _reckon(self, held: BufferedEntry, sign: i64) -> None:
        if held.messages > 0:
            self.messages += sign * held.messages
            self.byte_count += sign * held.byte_count
            self._control.hold(sign * held.messages, sign * held.byte_count)
            return
        self._commands += sign
        self._control.hold_command(sign * held.command_bytes)
        if self._stalled:
            stalled = self._commands > CHANNEL_COMMANDS_MAX // 2
        else:
            stalled = self._commands >= CHANNEL_COMMANDS_MAX
        if stalled != self._stalled:
            self._stalled = stalled
            self._control.stall(stalled)

    # Out

    def may_pass(self, order: i64) -> bool:
        """Return whether an input of this order may overtake the first row."""
        if self._barriers > 0:
            return False
        return order == OVERTAKES_ALL or (
            order == OVERTAKES_PUBLISHES and self._commands_ahead == 0
        )

    def first(self) -> BufferedInput:
        """Return the oldest input of the first row, which is not empty."""
        return self._held[0].event

    def take_first(self) -> BufferedEntry:
        """Take the oldest input of the first row, which is not empty."""
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
        dropped = BufferedEntry([], self.messages, self.byte_count)
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
            self.take_first()
        while self._behind:
            self.take_behind()
        self.take_aside()
