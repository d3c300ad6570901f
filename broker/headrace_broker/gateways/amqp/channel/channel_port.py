"""Inputs of a channel, and its interface to its connection."""

from __future__ import annotations

from typing import Final, TypeAlias

from mypy_extensions import i64, trait

from headrace_broker.codecs.event import Acked, ContentTooLarge, Method, Rejected
from headrace_broker.codecs.frame import BASIC_ACK, BASIC_PUBLISH, BASIC_REJECT, CHANNEL_CLOSE_OK
from headrace_broker.codecs.method import method_name
from headrace_broker.gateways.amqp.model.states import (
    CHANNEL_INPUT_CLOSE,
    CHANNEL_INPUT_CLOSE_OK,
    CHANNEL_INPUT_METHOD,
    CHANNEL_INPUT_OPEN,
    CHANNEL_STATES,
)
from headrace_broker.model.message import Publish
from headrace_broker.model.reply_code import CHANNEL_ERROR, PRECONDITION_FAILED, AmqpError
from headrace_broker.runtime.contract.port import MODIFY_FAILED, REJECT, RELEASE

METHOD_OPEN: Final = 0x0014000A
METHOD_CLOSE: Final = 0x00140028

Input: TypeAlias = list[Publish] | Acked | Rejected | Method | ContentTooLarge


def unexpected(number: i64, state: i64, index: i64) -> AmqpError:
    """Return the error for a method that a channel must not be sent in its CHANNEL_* state."""
    where = f"on channel {int(number)}, which is {CHANNEL_STATES[int(state)]}"
    return AmqpError(CHANNEL_ERROR, f"{method_name(int(index))} {where}")


def timed_out(number: i64) -> AmqpError:
    """Return the error that closes a channel whose client did not acknowledge in time."""
    text = (
        f"delivery acknowledgement on channel {int(number)} timed out. "
        "This timeout value can be configured, see consumers doc guide to learn more"
    )
    return AmqpError(PRECONDITION_FAILED, text)


def input_index(event: Input) -> i64:
    """Return the method index (class id << 16 | method id) that an input stands for."""
    if isinstance(event, Acked):
        return BASIC_ACK
    if isinstance(event, Rejected):
        return event.index
    if isinstance(event, Method):
        return event.index
    return BASIC_PUBLISH


def input_kind(event: Input) -> int:
    """Return the CHANNEL_INPUT_* of an input."""
    if isinstance(event, Method):
        if event.index == METHOD_OPEN:
            return CHANNEL_INPUT_OPEN
        if event.index == METHOD_CLOSE:
            return CHANNEL_INPUT_CLOSE
        if event.index == CHANNEL_CLOSE_OK:
            return CHANNEL_INPUT_CLOSE_OK
    return CHANNEL_INPUT_METHOD


def settle_operation(event: Rejected) -> int:
    """Return what a basic.reject or basic.nack asks of the queue.

    Only what basic.reject gives back counts as a failed delivery.

    Source: RabbitMQ's guide on quorum queues, "Poison message handling".
    """
    if not event.requeue:
        return REJECT
    return MODIFY_FAILED if event.index == BASIC_REJECT else RELEASE


@trait
class ChannelOwner:
    """The connection, as its channels see it."""

    def fail(self, error: AmqpError, index: i64) -> None:
        """Close the connection for an error in method `index`."""
        raise AssertionError("abstract")

    def crash(self, what: str) -> None:
        """Close the connection for the exception being handled."""
        raise AssertionError("abstract")

    def dispatch(self, number: i64, event: Input) -> None:
        """Give an input to the channel with this number, whichever it is now."""
        raise AssertionError("abstract")

    def channel_closed(self, number: i64) -> None:
        """The channel is gone; its number may be opened again."""
        raise AssertionError("abstract")

    def operation_started(self) -> None:
        """An operation runs that may leave something behind for the connection."""
        raise AssertionError("abstract")

    def operation_ended(self) -> None:
        """It is over."""
        raise AssertionError("abstract")
