"""What a channel cannot handle yet: publishes that a limit stops, and what comes behind them."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, trait
from pamqp import commands
from typing_extensions import override

from headrace_broker.codecs.event import Acked, Method, Rejected
from headrace_broker.codecs.frame import BASIC_ACK, BASIC_NACK, BASIC_REJECT
from headrace_broker.flow.activity import Activity
from headrace_broker.flow.gate import Gate, Waiter
from headrace_broker.gateways.amqp.brake import Brake
from headrace_broker.gateways.amqp.channel_port import METHOD_CLOSE, Input
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
from headrace_broker.runtime.lane import message_cost

if TYPE_CHECKING:
    from headrace_broker.gateways.amqp.links import Links

_LOG: Final = logging.getLogger(__name__)

TX_COMMIT: Final = 0x005A0014
# Nothing may overtake these: what comes behind them means something else than before them.
_SEALS: Final = frozenset(
    {
        METHOD_CLOSE,
        TX_COMMIT,
        int(commands.Tx.Select.index),
        int(commands.Tx.Rollback.index),
    }
)
# These may overtake everything else, as settlements do.
_FREE: Final = frozenset(
    {
        int(commands.Basic.Recover.index),
        int(commands.Basic.RecoverAsync.index),
        int(commands.Basic.CancelOk.index),
        int(commands.Channel.Flow.index),
        int(commands.Channel.FlowOk.index),
    }
)
# These may overtake publishes, but not for instance a basic.consume.
_PASSING: Final = frozenset({int(commands.Basic.Cancel.index), int(commands.Basic.Qos.index)})
_SETTLEMENTS: Final = frozenset({BASIC_ACK, BASIC_REJECT, BASIC_NACK})
NO_METHOD: Final = 0  # what fails is nothing that the client sent
# When one of these fails, what is held came before it; otherwise it came behind.
OVERTAKING: Final = _FREE | _PASSING | _SETTLEMENTS | {NO_METHOD}


@trait
class Passer:
    """The channel, as what it holds sees it."""

    @property
    def is_busy(self) -> bool:
        """Whether an operation is awaited: nothing is handled meanwhile."""
        raise AssertionError("abstract")

    @property
    def is_open(self) -> bool:
        """Whether it may be used."""
        raise AssertionError("abstract")

    def resume(self, event: Input, served: bool) -> None:
        """Handle an input that was held, or put it back.

        Args:
            event: the oldest.
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
class Held:
    """An input that waits.

    Attributes:
        event: a list of publishes, or something else.
        messages: how many publishes.
        octets: what they are reckoned at.
        method_octets: of a method.
    """

    def __init__(self, event: Input, messages: i64, octets: i64, method_octets: i64 = 0) -> None:
        self.event = event
        self.messages = messages
        self.octets = octets
        self.method_octets = method_octets


def _held(event: Input) -> Held:
    if not isinstance(event, list):
        return Held(event, 0, 0, len(event.payload) if isinstance(event, Method) else 0)
    octets: i64 = 0
    for publish in event:
        octets += message_cost(publish)
    return Held(event, len(event), octets)


@final
class Holding(Waiter):
    """One channel's inputs that wait, in two rows.

    Attributes:
        flow: what stops the channel.
        messages: publishes in both rows.
        octets: the same in octets.
        withheld_by: the queue that withholds confirms of the channel for longest, 0 for none. That
            holds nothing here, so it is what stops the channel only where nothing else does.
    """

    def __init__(self, brake: Brake, passer: Passer, flow: Activity) -> None:
        self.account = brake.account
        self.flow = flow
        self.messages: i64 = 0
        self.octets: i64 = 0
        self.withheld_by: i64 = 0
        self._brake = brake
        self._passer = passer
        self._held: deque[Held] = deque()  # begins with publishes that are stopped
        self._behind: deque[Held] = deque()  # behind an operation; younger than those
        self._gate: Gate | None = None
        self._methods: i64 = 0  # other than publishes in the first row
        self._seals: i64 = 0  # of these, those that nothing may overtake
        self._commands: i64 = 0  # other than publishes in both rows
        self._stalled = False
        self._joined = False
        self._moved = False
        self._closes = False
        self._stopped = False  # the input that was handled last was put back
        self._octets_back: i64 = 0
        self._aside = Held([], 0, 0)

    @property
    def is_holding(self) -> bool:
        """Whether a limit stops the channel."""
        return len(self._held) > 0

    @property
    def waits_behind(self) -> bool:
        """True while anything waits behind an operation."""
        return len(self._behind) > 0

    # In

    def hold(self, event: Input) -> None:
        """Put an input at the end of the first row."""
        self._put(_held(event), self._held, False)

    def put_back(self, event: Input, limit: i64, links: Links) -> None:
        """Put an input at its head, for a limit that concerns the channel stops it."""
        if limit == LIMIT_INTAKE:
            self.put_back_at(event, self._brake.intake.gate)
            return
        self._put_first(event)
        group: i64 = 0
        if limit == LIMIT_ACCOUNT:
            group = self._brake.deepest()
        elif limit == LIMIT_COMMANDS:
            group = links.congested_group
        self.stop(limit, group)

    def put_back_at(self, event: Input, gate: Gate) -> None:
        """Put an input at its head, and wait at a gate."""
        self._put_first(event)
        self.stop(gate.limit, gate.group)
        self._gate = gate
        gate.wait(self)

    def _put_first(self, event: Input) -> None:
        held = _held(event)
        self._put(held, self._held, True)
        self._stopped = True
        self._octets_back = held.octets

    def set_aside(self, publishes: list[Publish]) -> None:
        """Reckon publishes that somebody else keeps until `take_aside`."""
        self._aside = _held(publishes)
        self._reckon(self._aside, 1)

    def take_aside(self) -> None:
        """Reckon them no more; does nothing the second time."""
        aside = self._aside
        self._aside = Held([], 0, 0)
        if aside.messages > 0:
            self._reckon(aside, -1)

    def wait(self, event: Input) -> None:
        """Put an input at the end of the second row, behind the operation that is awaited."""
        self._put(_held(event), self._behind, False)

    def _put(self, held: Held, row: deque[Held], first: bool) -> None:
        if row is self._held:
            if not self._joined:
                self._joined = True
                self._moved = True
                self._brake.join(self)
            self._count(held.event, 1)
        if first:
            row.appendleft(held)
        else:
            row.append(held)
        self._reckon(held, 1)

    def _count(self, event: Input, sign: i64) -> None:
        if not isinstance(event, list):
            self._methods += sign
            if isinstance(event, Method) and int(event.index) in _SEALS:
                self._seals += sign
                if event.index == METHOD_CLOSE:
                    self._closes = sign > 0
                    self._brake.watch_closing()

    def _reckon(self, held: Held, sign: i64) -> None:
        if held.messages > 0:
            self.messages += sign * held.messages
            self.octets += sign * held.octets
            self._brake.hold(sign * held.messages, sign * held.octets)
            return
        self._commands += sign
        self._brake.hold_method(sign * held.method_octets)
        if self._stalled:
            stalled = self._commands > CHANNEL_COMMANDS_MAX // 2
        else:
            stalled = self._commands >= CHANNEL_COMMANDS_MAX
        if stalled != self._stalled:
            self._stalled = stalled
            self._brake.stall(stalled)

    # Out

    def may_pass(self, event: Input) -> bool:
        """Return whether an input may overtake all that is held."""
        if self._seals > 0:
            return False
        if isinstance(event, (Acked, Rejected)):
            return True
        if not isinstance(event, Method):
            return False
        index = int(event.index)
        return index in _FREE or (index in _PASSING and self._methods == 0)

    def _take_first(self) -> Held:
        held = self._held.popleft()
        self._count(held.event, -1)
        self._reckon(held, -1)
        return held

    def take_behind(self) -> Input | None:
        """Take the oldest that waited behind an operation, None when there is none."""
        if not self._behind:
            return None
        held = self._behind.popleft()
        self._reckon(held, -1)
        return held.event

    def drop_publishes(self) -> Held:
        """Forget all publishes, and return how many that were."""
        dropped = Held([], self.messages, self.octets)
        for row in (self._held, self._behind):
            for _ in range(len(row)):
                held = row.popleft()
                if held.messages > 0:
                    self._reckon(held, -1)
                else:
                    row.append(held)
        return dropped

    def clear(self) -> None:
        """Forget everything."""
        while self._held:
            self._take_first()
        while self._behind:
            self.take_behind()
        self.take_aside()
        self._settle()

    # What stops it

    def limit(self, links: Links, served: bool) -> i64:
        """Return the limit other than a queue's that stops the channel now, NO_LIMIT for none."""
        limit = self._brake.limit(served)
        if limit != NO_LIMIT or links.credit.is_left():
            return limit
        return LIMIT_COMMANDS if links.congested_group else LIMIT_CREDIT

    def stop(self, limit: i64, group: i64) -> None:
        """A limit stops what is held, and says itself when it does so no more."""
        self._leave_gate()
        flow = self.flow
        if flow.limit != limit or flow.group != group:
            flow.stop(limit, group, self._brake.now_us())
            self._brake.show()

    def withhold(self, group: i64) -> None:
        """A queue withholds confirms, another one does so for longest now, or with 0 none does."""
        if group != self.withheld_by:
            self.withheld_by = group
            if not self._joined:
                self._rest()
            self._brake.withhold(self)

    def _rest(self) -> None:
        """Nothing is held: what stops the channel is that confirms are withheld, or nothing."""
        if self.withheld_by != 0:
            self.flow.stop(LIMIT_WATERMARK, self.withheld_by, self._brake.now_us())
        elif self.flow.limit != NO_LIMIT:
            self.flow.go(self._brake.now_us())

    def _leave_gate(self) -> None:
        if self._gate is not None:
            self._gate.leave(self)
            self._gate = None

    # Going on

    def go_on(self) -> None:
        """Pass on what is held, unless it stands at a gate that will call."""
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
            self._passer.crash()
        if self._held and gate is not None and not self._stopped and not self._passer.is_busy:
            self._gate = gate  # it had its share for now
            gate.wait(self)
        return gone

    def _pass_on(self, octets: i64, served: bool) -> i64:
        """Have inputs handled, the oldest first, until one is put back."""
        gone: i64 = 0
        while self._held and not self._passer.is_busy:
            if gone >= octets and self._passer.is_open:
                break
            if self._brake.is_spent and not isinstance(self._held[0].event, list):
                self._brake.wake()  # methods wait for another turn
                break
            self._stopped = False
            self._octets_back = 0
            held = self._take_first()
            self._passer.resume(held.event, served)
            gone += held.octets - self._octets_back
            if self._stopped:
                break
        if gone > 0:
            self._moved = True
            self._brake.moved = True
        self._settle()
        return gone

    def _settle(self) -> None:
        """Take note that something went: perhaps it was the last."""
        if self._joined and not self._held:
            self._joined = False
            self._leave_gate()
            self._rest()
            self._brake.leave(self)

    # The end

    def look(self) -> bool:
        """Let the channel close if nothing has moved since the last look; else return True."""
        if not self._closes:
            return False
        if self._moved or self._passer.is_busy:  # an operation ends by itself
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
        brake = self._brake
        try:
            while self._held and not self._passer.is_busy and brake.has_room(self.octets):
                event = self._held[0].event
                if not isinstance(event, list) or not self._passer.force(event):
                    break
                self._take_first()
        except AmqpError as error:
            _LOG.info("%s: publishes that were held are void: %s", brake.name, error)
        except Exception:  # noqa: BLE001 - only this connection ends; others may stand at its gate
            _LOG.exception("%s: while handing over publishes that were held", brake.name)
        void = not self._passer.is_open
        dropped = self.drop_publishes()
        if dropped.messages > 0 and not void:
            brake.drop(dropped.messages, dropped.octets)
            text = "%s: %d publishes that were held are dropped, for their channel ends"
            _LOG.warning(text, brake.name, int(dropped.messages))
        self._leave_gate()
        self._settle()
        brake.wake()
