"""Random schedules of publishes, limits and ends: in order, once, and nothing stays held."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from headrace_broker.codecs.batch import message_body
from headrace_broker.codecs.method import encode_method

CHANNELS = 3
QUEUES = ("a", "b", "c")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "publish",
                "publish",
                "publish",
                "method",
                "shut",
                "open",
                "alarm",
                "calm",
                "owe",
                "repay",
                "congest",
                "relieve",
                "turn",
                "operate",
                "end_operation",
                "reopen",
            ]
        ),
        st.integers(0, CHANNELS - 1),
        st.integers(0, len(QUEUES) - 1),
        st.integers(1, 4),
    ),
    max_size=60,
)


class Run:
    """One client with some channels, in confirm mode, and its queues."""

    def __init__(self, new_broker: type[Any], kit: Any) -> None:
        self.kit = kit
        self.broker = new_broker()
        self.broker.flow.account_messages = 6
        self.broker.flow.credit = 4
        self.broker.flow.credit_more = 2
        self.broker.flow.connection_buffer_bytes = 4000
        self.queues = [self.broker.add_queue(name) for name in QUEUES]
        self.peer = kit.Peer(self.broker, 1).open(channels=CHANNELS)
        self.sent: dict[int, list[bytes]] = {channel: [] for channel in range(CHANNELS)}
        self.confirmed = 0
        self.numbers = 0
        for channel in range(CHANNELS):
            self.peer.call(channel + 1, commands.Confirm.Select())

    def publish(self, channel: int, queue: int, count: int) -> None:
        if not self.peer.shell.reading:
            return
        frames = []
        for _ in range(count):
            body = b"%d-%05d" % (channel, self.numbers)
            self.numbers += 1
            self.sent[channel].append(body)
            # Every third is looked at by itself, and goes where the others go.
            copies: Any = {"CC": [QUEUES[queue]]} if self.numbers % 3 == 0 else None
            frames.append(
                self.kit.publish(
                    *(channel + 1, "", QUEUES[queue], body),
                    properties=commands.Basic.Properties(headers=copies),
                )
            )
        self.peer.feed(b"".join(frames))

    def method(self, channel: int, queue: int, count: int) -> None:
        if self.peer.shell.reading:
            self.peer.feed(encode_method(channel + 1, commands.Queue.Declare(queue=QUEUES[queue])))

    def shut(self, channel: int, queue: int, count: int) -> None:
        self.queues[queue].gate.set_room(False)

    def open(self, channel: int, queue: int, count: int) -> None:
        gate = self.queues[queue].gate
        gate.set_room(True)
        gate.serve(20 * count)

    def alarm(self, channel: int, queue: int, count: int) -> None:
        self.broker.block("low")

    def calm(self, channel: int, queue: int, count: int) -> None:
        self.broker.block("")

    def owe(self, channel: int, queue: int, count: int) -> None:
        self.broker.hold_loans = True

    def repay(self, channel: int, queue: int, count: int) -> None:
        self.broker.hold_loans = False
        self.broker.repay()

    def congest(self, channel: int, queue: int, count: int) -> None:
        self.broker.congested = True

    def relieve(self, channel: int, queue: int, count: int) -> None:
        self.broker.end_congestion()

    def operate(self, channel: int, queue: int, count: int) -> None:
        self.broker.gate.opened = False

    def end_operation(self, channel: int, queue: int, count: int) -> None:
        self.broker.gate.opened = True
        self.turn()

    def reopen(self, channel: int, queue: int, count: int) -> None:
        """Close a channel and open it again, both at once; nothing may be lost by that."""
        if self.peer.shell.reading:
            number = channel + 1
            self.peer.feed(encode_method(number, commands.Channel.Close(200, "", 0, 0)))
            self.peer.feed(encode_method(number, commands.Channel.Open()))

    def turn(self, channel: int = 0, queue: int = 0, count: int = 0) -> None:
        self.peer.turn()

    def calm_down(self) -> None:
        """Take away whatever stops anybody."""
        self.calm(0, 0, 0)
        self.repay(0, 0, 0)
        self.relieve(0, 0, 0)
        self.end_operation(0, 0, 0)
        for _ in range(4):
            for queue in range(len(QUEUES)):
                self.open(0, queue, 1 << 20)
            self.turn()

    def check(self) -> None:
        info = self.peer.info
        assert (info.buffered_messages, info.buffered_bytes, info.state) == (0, 0, "running")
        assert self.broker.intake.shares.held == 0
        assert info.account.messages == 0
        assert self.peer.shell.reading
        arrived: list[bytes] = []
        for queue in self.queues:
            assert queue.gate.waiting_count == 0
            bodies = [message_body(each.blob, 0, each.position) for each in queue.ready]
            arrived += bodies
            for channel in range(CHANNELS):
                mine = [body for body in bodies if body.startswith(b"%d-" % channel)]
                assert mine == sorted(mine), "out of order"
        sent = [body for bodies in self.sent.values() for body in bodies]
        assert sorted(arrived) == sorted(sent), "lost, or twice"


@settings(max_examples=150, deadline=None, derandomize=True)
@given(steps=STEPS)
def test_what_is_published_arrives_once_and_in_order_and_nothing_stays_held(
    new_broker: type[Any], kit: Any, steps: list[tuple[str, int, int, int]]
) -> None:
    run = Run(new_broker, kit)
    for name, channel, queue, count in steps:
        getattr(run, name)(channel, queue, count)
    run.calm_down()
    run.check()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(steps=STEPS)
def test_what_a_lost_connection_held_is_handed_over_or_counted(
    new_broker: type[Any], kit: Any, steps: list[tuple[str, int, int, int]]
) -> None:
    run = Run(new_broker, kit)
    for name, channel, queue, count in steps:
        getattr(run, name)(channel, queue, count)
    run.peer.connection.lost()
    run.broker.hold_loans = False
    run.broker.repay()
    run.broker.gate.opened = True
    run.turn()
    broker = run.broker
    broker.ledger.sweep()
    arrived = sum(len(queue.ready) for queue in run.queues)
    assert arrived + broker.ledger.dropped_messages == run.numbers
    assert broker.intake.shares.held == 0
    assert run.peer.info.id not in broker.ledger.accounts
    assert all(queue.gate.waiting_count == 0 for queue in run.queues)
