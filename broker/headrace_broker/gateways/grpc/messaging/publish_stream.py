"""A publish stream without its call: batches in; confirms, refusals and windows out.

It publishes, waits and is stopped as an AMQP channel of its own connection, by the same parts.
Nothing here knows gRPC.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple, final

from mypy_extensions import i64
from typing_extensions import override

from headrace_broker.flow.blocked import NOT_BLOCKED, Blocked
from headrace_broker.flow.stream_window import StreamWindow
from headrace_broker.gateways.grpc.messaging.stream_confirms import StreamConfirms
from headrace_broker.gateways.publishing.admission_control import BlockedNotifier
from headrace_broker.gateways.publishing.command import BufferedInput
from headrace_broker.gateways.publishing.links import Links
from headrace_broker.gateways.publishing.output_buffer import OutputBuffer
from headrace_broker.gateways.publishing.publish_admission import PublishAdmission
from headrace_broker.gateways.publishing.publish_listener import PublishListener
from headrace_broker.gateways.publishing.publisher import Publisher, Run
from headrace_broker.gateways.publishing.shell import Shell
from headrace_broker.gateways.publishing.timers import TIMER_TELL
from headrace_broker.model.flow import LIMIT_NAMES, NO_LIMIT, is_alarm
from headrace_broker.model.limits import STREAM_TELL_MS, STREAM_WINDOW_MESSAGES
from headrace_broker.model.message import Publish
from headrace_broker.model.message import Publisher as PublisherName
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.contract.port import ConnectionInfo, PendingConfirm, QueueClient
from headrace_broker.runtime.routing.router import Route

_LOG: Final = logging.getLogger("headrace.connection")


class Refusal(NamedTuple):
    """Messages that are not published."""

    first: int  # sequence of the first
    last: int  # of the last
    code: int  # a reply code
    text: str  # why


class Return(NamedTuple):
    """A mandatory message that reached no queue."""

    sequence: int
    code: int
    text: str


@final
class StreamPublisher(Publisher):
    """Publisher of a stream: returns are noted by their sequence."""

    def __init__(
        self,
        output: OutputBuffer,
        links: Links,
        confirms: StreamConfirms,
        name: PublisherName | None,
    ) -> None:
        super().__init__(output, links, confirms)
        self._name = name
        self.returned: list[Return] = []  # not told yet
        # not told yet, of messages that were not handed to queues
        self.refusals: list[Refusal] = []
        # where all messages go whatever their routes say, None for where those lead
        self.target: Route | None = None
        self._stream_output = output
        self._numbers = confirms

    @override
    def prepare(self, publishes: list[Publish], at: i64, current: bool) -> None:
        target = self.target
        if target is None:
            super().prepare(publishes, at, current)
        else:
            self.run.begin(target, publishes, len(publishes))

    @override
    def hand_out(self, run: Run) -> None:
        self._numbers.start_at(run.ready[0].channel)
        super().hand_out(run)

    @override
    def refuse(self, run: Run) -> None:
        """Note what is at fault; other than on an AMQP channel, those behind are as good."""
        assert run.error is not None, "something is wrong with it"
        last = run.ready[len(run.ready) - 1].channel
        self.refuse_range(run.ready[0].channel, last, run.error.code, run.error.text)

    def refuse_range(self, first: i64, last: i64, code: int, text: str) -> None:
        """Answer messages that are not published."""
        refusals = self.refusals
        self._stream_output.wake()
        if refusals:
            before = refusals[len(refusals) - 1]
            if before.last + 1 == first and before.code == code and before.text == text:
                refusals[len(refusals) - 1] = Refusal(before.first, int(last), code, text)
                return
        refusals.append(Refusal(int(first), int(last), code, text))

    @override
    def return_publish(self, publish: Publish, code: int, text: bytes) -> None:
        self._stream_output.admission.intake.returned += 1
        self.returned.append(Return(int(publish.channel), code, text.decode()))
        self._stream_output.wake()

    @override
    def send(
        self, client: QueueClient, publishes: list[Publish], pending_confirm: PendingConfirm | None
    ) -> bool:
        name = self._name
        if name is None:
            return client.publish(publishes, pending_confirm)
        sequences = [int(publish.channel) for publish in publishes]
        return client.publish_named(publishes, pending_confirm, name, sequences)


@final
class PublishStream(PublishListener, BlockedNotifier):
    """One stream from its opening to its end. `Publish.channel` holds the sequence."""

    def __init__(
        self,
        broker: Broker,
        shell: Shell,  # gives turns, timers and operations
        info: ConnectionInfo,  # for listings, with user and vhost
        confirms: bool,  # the client wants them
        name: PublisherName | None = None,  # who publishes, where queues are to know repetitions
    ) -> None:
        # what stops its reading, and its turn's end
        self.output = OutputBuffer(broker, shell, info)
        self.output.vhost = info.vhost
        self.links = Links(self.output, self)
        self.confirms = StreamConfirms(confirms, self.links.traffic)  # answers of queues
        # hands its publishes out
        self.publisher = StreamPublisher(self.output, self.links, self.confirms, name)
        self.admission = PublishAdmission(self.output.admission, self, self.publisher)
        self.buffer = self.admission.buffer  # what waits
        self.flow = self.admission.flow  # what stops it
        self.window = StreamWindow()  # what its client may send
        self.is_told = True  # the client knows the window; otherwise it is to be told
        self.told = NOT_BLOCKED  # what the client is told of with the window
        self.crashed = False  # a fault of the broker: the stream is to end
        self._broker = broker  # the node
        self._busy = False
        self._open = True
        self._shut = False  # the window
        self._tell = self._tell_stop  # one object
        self._watcher = self.blocked_changed  # one object
        admission = self.output.admission
        admission.notifier = self
        admission.publisher = True
        self._open_window()

    def begin(self) -> None:
        """Hear of alarms from now on, until it is closed."""
        blocked = self._broker.blocked
        blocked.watch(self._watcher)
        self.blocked_changed(NOT_BLOCKED, blocked.now)

    # From the client

    def receive(self, messages: i64, byte_count: i64) -> None:
        """A batch has come, which `take` gets in parts."""
        self.window.receive(messages, byte_count)

    def accept(self, publishes: list[Publish]) -> None:
        """Publish messages with one route and ascending sequences, or have them wait."""
        if self._busy:
            self.buffer.wait(publishes)
        elif self.buffer.is_holding:
            self.admission.hold(publishes)
        else:
            self._publish(publishes, False, False)

    def end_batch(self) -> None:
        """All of a batch was taken."""
        self.output.flush_links()
        self._renew()

    @property
    def is_done(self) -> bool:
        """True if nothing is under way that the client has yet to be told of."""
        waits = self.buffer.messages > 0 or self._busy
        return not waits and self.confirms.open_pending_confirms == 0

    @property
    def may_read(self) -> bool:
        """True if the next batch may be read."""
        return self.output.pauses == 0 and not self.window.exceeded

    def blocked_changed(self, before: Blocked, now: Blocked) -> None:
        """Tell the client of an alarm, another alarm, or its end, at once."""
        if before is now:
            return
        self.output.admission.blocked_changed()
        if now.is_on:
            self._show_stop(now, True)
        elif self.buffer.is_holding:
            self._tell_later()
        else:
            self._open_window()
            self._tell_deferred()

    def close(self) -> None:
        """Close the stream: hand over buffered publishes if there is room, else drop them."""
        if not self._open:
            return
        self._broker.blocked.unwatch(self._watcher)
        self.admission.release()
        self._open = False
        self.output.flush_links()
        self.admission.clear()
        self.admission.defer(0)
        self.confirms.discard()
        self.links.close()
        self.output.admission.timers.cancel(TIMER_TELL)
        self.output.admission.close()

    @override
    def on_unreachable(self, client: QueueClient, text: str) -> None:
        """Refuse what a queue without a leader has not confirmed; the stream goes on."""
        self.refuse_unreachable(client, text)
        self.output.admission.wake()

    # The window

    def flush(self) -> None:
        """End a turn of the loop."""
        self.output.flush()
        self._renew()

    def _renew(self) -> None:
        if self._shut or self.buffer.is_holding:
            return
        window = self.window
        size, byte_count = self._sizes()
        if window.renew(size, byte_count, self.buffer.messages, self.buffer.byte_count):
            self.is_told = False

    def _sizes(self) -> tuple[int, int]:
        limits = self._broker.flow
        return int(limits.scaled(STREAM_WINDOW_MESSAGES)), int(
            limits.scaled(limits.connection_buffer_bytes)
        )

    def _open_window(self) -> None:
        """Open the window unless a limit has stopped the stream for long."""
        self._shut = False
        self.told = NOT_BLOCKED
        size, byte_count = self._sizes()
        self.window.open(size, byte_count, self.buffer.messages, self.buffer.byte_count)
        self.is_told = False
        self.output.wake()

    def _show_stop(self, blocked: Blocked, shut: bool) -> None:
        self._shut = shut
        if shut:
            self.window.shut()
        self.told = blocked
        self.is_told = False
        self.output.wake()

    @override
    def stopped(self) -> None:
        self._tell_later()

    @override
    def going(self) -> None:
        self.output.admission.timers.cancel(TIMER_TELL)
        if self._broker.blocked.now.is_on:
            return
        if self._shut or (self.told.is_on and self.admission.deferred_by == 0):
            self._open_window()
        self._tell_deferred()

    def _tell_later(self) -> None:
        if not self._broker.blocked.now.is_on:
            self.output.admission.timers.set(TIMER_TELL, STREAM_TELL_MS / 1000, self._tell)

    def _tell_stop(self) -> None:
        """It was stopped for so long without a pause, or confirms are deferred."""
        flow = self.flow
        if flow.limit == NO_LIMIT or not self._open or self._broker.blocked.now.is_on:
            return
        if is_alarm(flow.limit):  # which is over: what stops it now is not known yet
            self._tell_later()
            return
        queue = self._broker.queue_by_group(int(flow.group))
        of = f" of queue '{queue.name}'" if queue is not None else ""
        reason = f"the limit '{LIMIT_NAMES[int(flow.limit)]}'{of} holds the stream back"
        node = self._broker.node_name
        blocked = Blocked(reason, flow.limit, flow.group, flow.since_us, node)
        self._show_stop(blocked, self.buffer.is_holding)

    @override
    def deferred_changed(self) -> None:
        """Confirms are deferred, or no longer: that is told, but does not shut the window."""
        self.admission.defer(self.confirms.deferred_by())
        if self.buffer.is_holding or self._shut:
            return
        self._tell_deferred()
        if self.admission.deferred_by == 0 and self.told.is_on:
            self.output.admission.timers.cancel(TIMER_TELL)
            self._open_window()

    def _tell_deferred(self) -> None:
        if self.admission.deferred_by != 0 and not self.told.is_on:
            self._tell_later()

    # Publishing

    def _publish(self, publishes: list[Publish], served: bool, current: bool) -> None:
        left = self.admission.publish(publishes, served, current)
        if left:
            self._busy = True
            self.output.flush_links()
            self.output.shell.start(self._publish_left(left))

    async def _publish_left(self, publishes: list[Publish]) -> None:
        """Publish what found no queue once this node knows of all that was declared before."""
        self.buffer.set_aside(publishes)
        failure: AmqpError | None = None
        try:
            await self._broker.catch_up()
        except AmqpError as error:
            failure = error
        finally:
            self.buffer.take_aside()
            self._busy = False
        if not self._open:
            return
        try:
            if failure is None:
                self._publish(publishes, False, True)
            else:
                last = publishes[len(publishes) - 1].channel
                self.publisher.refuse_range(publishes[0].channel, last, failure.code, failure.text)
            self._drain()
        except Exception:  # noqa: BLE001 - only this stream ends
            self.crash()

    def _drain(self) -> None:
        """Continue with waiting inputs: buffered publishes, which are older, first."""
        self.admission.go_on()
        while not self._busy:
            event = self.buffer.take_behind()
            if event is None:
                break
            assert isinstance(event, list), "a stream has nothing but publishes"
            self.accept(event)
        self.output.wake()

    # From what it holds

    @property
    def is_busy(self) -> bool:
        """True while an operation is awaited."""
        return self._busy

    @property
    def is_open(self) -> bool:
        """True if it may publish."""
        return self._open

    def resume(self, waiting: BufferedInput, served: bool) -> None:
        """Publish the buffered publishes."""
        assert isinstance(waiting, list), "a stream has nothing but publishes"
        self._publish(waiting, served, False)

    def crash(self) -> None:
        """End the stream for the exception being handled."""
        _LOG.exception("%s: while publishing", self.output.admission.name)
        self.crashed = True
        self.output.wake()

    # From the queues

    @override
    def confirm(self) -> None:
        self.output.confirm(self.confirms)
