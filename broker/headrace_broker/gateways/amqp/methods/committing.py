"""Methods of class tx.

A commit first hands all publishes to their queues, one command for each queue, and waits for all of
them; only then it settles, again one command for each queue. So what commits at one queue is there
as a whole or not at all, and a message is never settled before its successors are safe; but queues
are independent, and a node that fails in between may leave a transaction done at some queues only.

Source: AMQP 0-9-1 specification, section 1.9 (tx); texts and refusals as in RabbitMQ.
"""

from __future__ import annotations

from typing import Final

from pamqp import commands

from headrace_broker.gateways.amqp.messages.consumer import ConsumerLink
from headrace_broker.gateways.amqp.methods.handler_port import Handler, Operation
from headrace_broker.gateways.amqp.methods.method_channel import MethodChannel
from headrace_broker.model.reply_code import PRECONDITION_FAILED, AmqpError
from headrace_broker.runtime.contract.port import PendingConfirm


def _select(channel: MethodChannel, command: commands.Tx.Select) -> None:
    if channel.confirms.enabled:
        raise AmqpError(PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
    channel.transaction.selected = True
    channel.send(commands.Tx.SelectOk())


def _commit(channel: MethodChannel, command: commands.Tx.Commit) -> Operation:
    _check_selected(channel)
    channel.publisher.check_held()
    return _apply(channel)


async def _apply(channel: MethodChannel) -> None:
    pending_confirms = await _publish(channel)
    if not channel.is_open:
        return
    if any(pending_confirm.refused is not None for pending_confirm in pending_confirms):
        raise AmqpError(PRECONDITION_FAILED, "partial tx completion")
    for link in channel.deliveries.commit():
        await link.client.applied()
    channel.send(commands.Tx.CommitOk())


async def _publish(channel: MethodChannel) -> list[PendingConfirm]:
    """Hand the publishes to their queues, and wait until each of them has them or refused."""
    admission = channel.output.admission
    owed = admission.account.byte_count
    links: list[ConsumerLink] = []
    pending_confirms: list[PendingConfirm] = []
    for queue, publishes in channel.publisher.distribute_held():
        link = channel.links.open(queue)
        # None of the channel's confirms, which pass over it.
        pending_confirm = PendingConfirm(1, len(publishes))
        link.pending_confirms += 1
        links.append(link)
        pending_confirms.append(pending_confirm)
        if not link.client.publish_whole(publishes, pending_confirm):
            channel.admission.congest(link)
    admission.intake.take(
        sum([pending_confirm.last for pending_confirm in pending_confirms]),
        admission.account.byte_count - owed,
    )
    for link in links:
        await link.client.applied()
    return pending_confirms


def _rollback(channel: MethodChannel, command: commands.Tx.Rollback) -> None:
    _check_selected(channel)
    channel.transaction.take_publishes()
    channel.deliveries.roll_back()
    channel.send(commands.Tx.RollbackOk())


def _check_selected(channel: MethodChannel) -> None:
    if not channel.transaction.selected:
        raise AmqpError(PRECONDITION_FAILED, "channel is not transactional")


TX_HANDLERS: Final[dict[int, Handler]] = {
    commands.Tx.Select.index: _select,
    commands.Tx.Commit.index: _commit,
    commands.Tx.Rollback.index: _rollback,
}
