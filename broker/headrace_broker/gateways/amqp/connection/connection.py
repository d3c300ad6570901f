"""A client connection without its socket: bytes in, bytes and operations out."""

from __future__ import annotations

import logging
from collections import deque
from typing import Final, final

from mypy_extensions import i64
from pamqp import commands

from headrace_broker.codecs.event import (
    Acked,
    ContentTooLarge,
    Heartbeat,
    Method,
    ProtocolHeader,
    Rejected,
    Violation,
)
from headrace_broker.codecs.frame import HEARTBEAT_FRAME
from headrace_broker.codecs.frame_parser import FrameParser
from headrace_broker.codecs.method import decode_method, method_name
from headrace_broker.flow.activity import Activity
from headrace_broker.gateways.amqp.channel.channel_port import ChannelOwner, Input, input_index
from headrace_broker.gateways.amqp.channel.grouping import Step, group_events
from headrace_broker.gateways.amqp.connection import handshake
from headrace_broker.gateways.amqp.connection.blocked_notifier import ConnectionBlockedNotifier
from headrace_broker.gateways.amqp.connection.channels import Channels
from headrace_broker.gateways.amqp.connection.control import Control
from headrace_broker.gateways.amqp.connection.heartbeat_monitor import HeartbeatMonitor
from headrace_broker.gateways.amqp.connection.opening import CONNECTION_METHODS, Opening
from headrace_broker.gateways.amqp.connection.registration import Registration
from headrace_broker.gateways.amqp.messages.connection_output import ConnectionOutput
from headrace_broker.gateways.amqp.model import states
from headrace_broker.gateways.publishing.output_buffer import PAUSE_OUTPUT
from headrace_broker.gateways.publishing.shell import Shell
from headrace_broker.model.limits import (
    CLOSE_SECONDS_MAX,
    FRAME_BYTES_MAX,
    HANDSHAKE_SECONDS_MAX,
    HEARTBEAT_UNITS,
    LOOP_HELD_US,
    METHOD_UNITS,
)
from headrace_broker.model.reply_code import (
    ACCESS_REFUSED,
    CHANNEL_ERROR,
    COMMAND_INVALID,
    CONNECTION_FORCED,
    INTERNAL_ERROR,
    NOT_IMPLEMENTED,
    AmqpError,
)
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.contract.port import ConnectionInfo
from headrace_broker.runtime.security.unproven_log import unproven

_LOG: Final = logging.getLogger("headrace.connection")


@final
class Connection(ChannelOwner):
    """One client connection; its `Shell` calls it for everything that happens."""

    def __init__(self, broker: Broker, shell: Shell, info: ConnectionInfo, host: str) -> None:
        self.state: i64 = states.AWAIT_HEADER  # a state of `states.CONNECTION_TABLE`
        self.info = info  # what listings show
        info.flow = Activity(broker.clock_us(), broker.ledger.stops)
        self.output = ConnectionOutput(broker, shell, info)
        self.channels = Channels(self.output, info)  # the open ones
        self._broker = broker
        self._shell = shell
        self._host = host
        # A client that has not logged in may not have contents kept for it.
        self._parser = FrameParser(FRAME_BYTES_MAX, 0)
        self._registration = Registration(self.output, info)
        self._notifier = ConnectionBlockedNotifier(self.output, info, self.channels)
        self._opening = Opening(info, self.output, self._parser, self._registration, self._notifier)
        self._heartbeat = HeartbeatMonitor()
        self._left: deque[Step] = deque()  # was read and waits for another turn
        self._left_bytes: i64 = 0  # of the reads that it came in
        self._operations: i64 = 0
        self._still_s = 0.0  # for how long nothing that is held has moved while it is leaving
        self._giving_up = False  # its channels, in turns of the loop
        self._lost = False
        shell.set_timer(HANDSHAKE_SECONDS_MAX)

    # From the shell

    def receive(self, data: bytes) -> None:
        """Take bytes from the socket."""
        self._heartbeat.heard = True
        self.info.recv_oct += len(data)
        self.info.recv_cnt += 1
        if self.state == states.CLOSED:
            return
        try:
            steps = group_events(self._parser.feed(data))
            if self._left or self.output.ends_links:
                self._left.extend(steps)
                self._left_bytes += len(data)
                self.output.wake()
            else:
                self._handle(steps, len(data))
            self._end_chunk()
        except Exception:  # noqa: BLE001 - only this connection ends
            self.crash("received bytes")

    def _handle(self, steps: list[Step], byte_count: i64) -> None:
        """Handle new input, as far as this turn of the loop allows."""
        began_us = self._broker.clock_us()
        effort = self.output.effort
        for done in range(len(steps)):
            step = steps[done]
            if effort.is_spent and not isinstance(step, (list, Acked)):
                effort.defer()
                self._left.extend(steps[done:])
                self._left_bytes = byte_count
                self.output.wake()
                break
            self._step(step)
        self._handled(began_us)

    def _handled(self, began_us: i64) -> None:
        """Do not read while something waits for another turn; note an input that took long."""
        self.output.pause_for_effort(len(self._left) > 0)
        now_us = self._broker.clock_us()
        if now_us - began_us > LOOP_HELD_US:
            self._broker.loop_watch.note(self.info.name, self.info.user, now_us - began_us, now_us)

    def _handle_left(self) -> None:
        """Handle the rest of earlier turns, in place: a read may have left thousands."""
        began_us = self._broker.clock_us()
        left = self._left
        effort = self.output.effort
        while left:
            step = left[0]
            waits = effort.is_spent or self.output.ends_links  # what has ended goes first
            if waits and not isinstance(step, (list, Acked)):
                effort.defer()
                break
            left.popleft()
            self._step(step)
        if not left:
            self._left_bytes = 0
        self._handled(began_us)
        self._end_chunk()

    def _end_chunk(self) -> None:
        self.output.flush_links()
        parser = self._parser
        partial = parser.buffered_bytes + self._left_bytes
        self.output.share.parsed(partial, parser.missing_bytes)

    def flush(self) -> None:
        """End a loop turn: write everything that has gathered."""
        try:
            if self._left:
                self._handle_left()
            self.output.flush()
            if self._giving_up:
                self._give_up()
            if self._left:
                self.output.wake()
            if self.output.admission.draining and not self.output.admission.is_holding:
                self._drained()
        except Exception:  # noqa: BLE001 - only this connection ends
            self.crash("the end of a turn")

    def writable_changed(self, writable: bool) -> None:
        """The socket's buffer is full, or has room again."""
        if writable:
            self._heartbeat.heard = True  # it reads: as good as a heartbeat
        self.output.set_writable(writable)

    def timer_fired(self) -> None:
        """The time for the handshake or the closing is over, or half a heartbeat interval."""
        if self.state != states.RUNNING:
            if self.output.admission.draining:
                self._look_at_draining()
            elif self.state == states.LEAVING:
                self._shell.set_timer(CLOSE_SECONDS_MAX)
                self._leave()
            else:
                self._shell.abort()
            return
        pauses = self.output.pauses
        if self._heartbeat.silent(pauses == 0 or pauses & PAUSE_OUTPUT != 0):
            _LOG.warning("%s: nothing heard for two heartbeat intervals", self.info.name)
            self._shell.abort()
            return
        if not self.output.wrote and self._shell.backlog() == 0:
            self.output.out.write(HEARTBEAT_FRAME)
            self.output.wake()
        self.output.wrote = False
        self._shell.set_timer(self.info.heartbeat_s / 2)

    def lost(self) -> None:
        """The socket is closed."""
        self._parser.discard()  # at once, not when all of this is collected as garbage
        self._left.clear()
        self._left_bytes = 0
        self._enter(states.DROP)
        self.output.admission.draining = False
        self._lost = True
        self._close_channels()

    def shut_down(self, reason: str) -> None:
        """Ask the client to go: connection.close with CONNECTION_FORCED."""
        if self.state < states.RUNNING:
            self._shell.abort()
            return
        self.fail(AmqpError(CONNECTION_FORCED, reason), 0)

    # From its channels

    def dispatch(self, number: i64, event: Input) -> None:
        """Give an input to a channel."""
        if self.state == states.RUNNING or self.output.admission.draining:
            self.channels.receive(number, event, self)

    def channel_closed(self, number: i64) -> None:
        """Forget a channel."""
        self.channels.remove(number)

    def fail(self, error: AmqpError, index: i64) -> None:
        """Send connection.close; nothing but its answer is of interest from now on."""
        before = self.state
        self._enter(states.FAIL)
        if self.state != states.CLOSING or before == states.CLOSING:
            if self.state == states.CLOSED:
                self._shell.disconnect()
            return
        if before < states.RUNNING:
            _LOG.info("%s: closed: %s", self.info.name, error, extra=unproven(self._host))
        else:
            _LOG.info("%s: closed: %s", self.info.name, error)
        self._close_channels()
        self.output.send_close(0, error, index)
        self._shell.set_timer(CLOSE_SECONDS_MAX)

    def crash(self, what: str) -> None:
        """Log the exception being handled and close the connection with INTERNAL_ERROR."""
        _LOG.exception(
            "%s: while handling %s",
            self.info.name,
            what,
            extra=unproven(self._host) if self.state < states.RUNNING else None,
        )
        self.fail(AmqpError(INTERNAL_ERROR, f"a fault of the broker while handling {what}"), 0)

    def operation_started(self) -> None:
        """Wait for it before exclusive queues are dropped: it may create one."""
        self._operations += 1

    def operation_ended(self) -> None:
        """Go on with the end of the connection, if that is due."""
        self._operations -= 1
        if self.state >= states.CLOSING:
            self._drop_owned()

    # What arrives

    def _arrive(self, number: i64, event: Input) -> None:
        if self.state != states.RUNNING:
            self._move(states.CHANNEL_FRAME, input_index(event))
            return
        self.channels.receive(number, event, self)

    def _step(self, step: Step) -> None:
        if isinstance(step, list):
            self._arrive(step[0].channel, step)
        elif isinstance(step, (Acked, Rejected, ContentTooLarge)):
            self._arrive(step.channel, step)
        elif isinstance(step, Method):
            if step.channel != 0:
                self._arrive(step.channel, step)
            else:
                self._method(step)
        elif isinstance(step, Heartbeat):
            self.output.effort.spend(HEARTBEAT_UNITS)
            self._move(states.HEARTBEAT, 0)
        elif isinstance(step, Violation):
            error = AmqpError(int(step.code), step.text)
            self.fail(error, step.class_id << 16 | step.method_id)
        elif isinstance(step, ProtocolHeader):
            self._header(step)

    def _header(self, event: ProtocolHeader) -> None:
        if event.data != handshake.SERVER_HEADER:
            self._shell.write(handshake.SERVER_HEADER)
            self._enter(states.DROP)
            self._shell.disconnect()
            return
        self._enter(states.HEADER)
        external = self.info.tls is not None and self.info.tls.external
        self.output.send(0, handshake.start(self._broker.cluster_name, external))

    def _method(self, event: Method) -> None:
        self.output.effort.spend(METHOD_UNITS)
        kind = CONNECTION_METHODS.get(int(event.index), states.NO_STATE)
        if self.state == states.CLOSING and kind == states.NO_STATE:
            return
        try:
            command = decode_method(event.payload)
            if kind == states.NO_STATE:
                raise AmqpError(NOT_IMPLEMENTED, method_name(int(event.index)))
            if not self._move(kind, event.index):
                return
            if isinstance(command, commands.Connection.StartOk):
                self._start_ok(command)
            elif isinstance(command, commands.Connection.TuneOk):
                self._opening.tune_ok(command)
            elif isinstance(command, commands.Connection.Open):
                self._open(command)
            elif isinstance(command, commands.Connection.UpdateSecret):
                # Passwords do not expire; as in RabbitMQ without a token there is nothing to renew.
                self.output.send(0, commands.Connection.UpdateSecretOk())
            elif isinstance(command, commands.Connection.Close):
                self._close()
            else:
                self._shell.disconnect()
        except AmqpError as error:
            self.fail(error, event.index)

    # Opening

    def _start_ok(self, command: commands.Connection.StartOk) -> None:
        user, password = self._opening.start_ok(command)
        self._operations += 1
        self._shell.start(self._authenticate(user, password))

    async def _authenticate(self, user: str, password: str | None) -> None:
        wait_s = 0.0
        try:
            if password is None:
                right = self._broker.authenticator.admits(user, self._host)
                self.info.session_epoch = self._broker.standings.epoch(user)
            else:
                verdict = await self._broker.authenticator.check(user, password, self._host)
                right, wait_s = verdict.right, verdict.wait_s
                self.info.session_epoch = verdict.epoch
            self._authenticated(right, wait_s)
        except Exception:  # noqa: BLE001 - only this connection ends
            self.crash("a log-in")
        self.operation_ended()

    def _authenticated(self, right: bool, wait_s: float) -> None:
        if self.state != states.AUTHENTICATING:
            return
        if right:
            self._enter(states.AUTHENTICATED)
            self.output.send(0, handshake.tune(self._broker.limits))
            return
        text = "%s: log-in of '%s' refused"
        _LOG.warning(text, self.info.name, self.info.user, extra=unproven(self._host))
        if self._opening.tell_refusal:
            text = handshake.refusal(self.info.mechanism, wait_s)
            self.fail(AmqpError(ACCESS_REFUSED, text), 0)
        else:
            self._enter(states.DROP)
            self._shell.disconnect()

    def _open(self, command: commands.Connection.Open) -> None:
        self._opening.open(command)
        self.output.send(0, commands.Connection.OpenOk())
        self._shell.set_timer(self.info.heartbeat_s / 2)
        bounds = (self._parser, self._broker.limits)
        admission = self.output.admission
        self.info.control = Control(self.channels, self, self.info, admission, *bounds)
        self._registration.enter()
        self._notifier.watch()

    # Closing

    def _close(self) -> None:
        """Answer once no publish is buffered, or once the buffer has not moved for too long."""
        if self.output.admission.is_holding:
            self.output.admission.draining = True
            self.output.admission.moved = True
            self._shell.set_timer(self._drain_seconds)
        else:
            self._drained()

    @property
    def _drain_seconds(self) -> float:
        return min(self.info.heartbeat_s / 2 or CLOSE_SECONDS_MAX, CLOSE_SECONDS_MAX)

    def _look_at_draining(self) -> None:
        """Send a sign of life to the client; drop buffered publishes that do not move."""
        admission = self.output.admission
        self._still_s = 0.0 if admission.moved else self._still_s + self._drain_seconds
        admission.moved = False
        if self._still_s >= CLOSE_SECONDS_MAX:
            self._drained()
            return
        self.output.out.write(HEARTBEAT_FRAME)
        self.output.wake()
        self._shell.set_timer(self._drain_seconds)

    def _drained(self) -> None:
        self.output.admission.draining = False
        self._shell.set_timer(CLOSE_SECONDS_MAX)
        self._close_channels()

    def _close_channels(self) -> None:
        """End all channels at once, and return their messages in turns of the loop."""
        self._registration.unwatch_user()
        self._notifier.unwatch()
        self.info.control = None
        self.output.shut()
        self.channels.drop_all()
        if not self._giving_up:
            self._giving_up = True
            self._operations += 1  # exclusive queues go last
        self._give_up()

    def _give_up(self) -> None:
        """Give up as much as this turn allows; the connection is over when nothing is left."""
        if not self.channels.give_up():
            return
        self._giving_up = False
        self._registration.remove()
        self.operation_ended()
        if self._lost:
            self.output.admission.close()
            self._shell.released()

    def _drop_owned(self) -> None:
        """Delete exclusive queues, once nothing is under way; then answer connection.close."""
        if self._operations > 0:
            return
        if self.output.owns_queues:
            self.output.owns_queues = False
            self._operations += 1
            self._shell.start(self._drop_owner())
        else:
            self._leave()

    async def _drop_owner(self) -> None:
        try:
            await self._broker.drop_owner(self.output.owner)
        except Exception:  # noqa: BLE001 - only this connection ends
            self.crash("exclusive queues")
        self.operation_ended()

    def _leave(self) -> None:
        if self.state == states.LEAVING:
            self._enter(states.DROP)
            self.output.send(0, commands.Connection.CloseOk())
            self.output.flush()
            self._shell.disconnect()

    # State

    def _enter(self, kind: int) -> None:
        following = states.advance(states.CONNECTION_TABLE, self.state, kind)
        assert following != states.NO_STATE, (self.state, kind)
        self.state = following

    def _move(self, kind: int, index: i64) -> bool:
        """Move the state by a peer's input; False when it is wrong here or to be ignored."""
        before = self.state
        following = states.advance(states.CONNECTION_TABLE, before, kind)
        if following == states.NO_STATE:
            code = CHANNEL_ERROR if kind == states.CHANNEL_FRAME else COMMAND_INVALID
            text = f"{states.CONNECTION_INPUTS[kind]} while {states.CONNECTION_STATES[int(before)]}"
            self.fail(AmqpError(code, text), index)
            return False
        self.state = following
        if before == states.CLOSING:
            return kind in (states.CLOSE, states.CLOSE_OK)
        return before != states.LEAVING
