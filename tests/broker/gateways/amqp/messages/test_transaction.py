"""Class tx: pending operations, the order of a commit, and rollback."""

from __future__ import annotations

import pytest
from pamqp import commands

from headrace_broker.gateways.amqp.messages.transaction import tx_bytes_max
from headrace_broker.model import limits
from headrace_broker.runtime.contract.port import ACCEPT, MODIFY_FAILED, REJECT

Ack = commands.Basic.Ack
Nack = commands.Basic.Nack
Reject = commands.Basic.Reject
Tx = commands.Tx


def names(frames):
    return [value.name for _, value in frames]


def tags(frames):
    return [value.delivery_tag for _, value in frames if value.name == "Basic.Deliver"]


@pytest.fixture
def selected(queue, broker, peer):
    """A client whose channel 1 is transactional, and queues q and r."""
    broker.add_queue("r")
    assert peer.ask(1, Tx.Select()).name == "Tx.SelectOk"
    return peer


@pytest.fixture
def consuming(queue, fill, selected):
    """The same with four messages delivered."""
    fill(4)
    frames = selected.call(1, commands.Basic.Consume(queue="q", consumer_tag="c"))
    assert tags(frames) == [1, 2, 3, 4]
    return selected


def test_publishes_reach_their_queue_at_commit_and_not_before(kit, queue, selected):
    selected.feed(kit.publish(1, "", "q", b"a") + kit.publish(1, "", "q", b"b"))
    assert selected.turn() == []
    assert len(queue.ready) == 0
    assert selected.ask(1, Tx.Commit()).name == "Tx.CommitOk"
    assert len(queue.ready) == 2


def test_each_queue_gets_one_command_with_its_publishes_in_order(kit, broker, selected):
    for name in ("q", "r"):
        selected.call(1, commands.Queue.Bind(queue=name, exchange="amq.fanout"))
    for exchange, key, body in (("", "q", b"1"), ("amq.fanout", "", b"2"), ("", "r", b"3")):
        selected.feed(kit.publish(1, exchange, key, body))
    assert names(selected.call(1, Tx.Commit())) == ["Tx.CommitOk"]
    assert [client.commands for client in broker.clients] == [[("publish", 2)]] * 2
    assert [len(broker.queues[name].ready) for name in ("q", "r")] == [2, 2]


def test_commit_waits_for_the_queues(kit, broker, selected):
    selected.feed(kit.publish(1, "", "q", b"a"))
    broker.gate.opened = False
    assert selected.call(1, Tx.Commit()) == []
    selected.feed(kit.publish(1, "", "q", b"b"))
    assert selected.call(1, Tx.Commit()) == []
    broker.gate.opened = True
    assert names(selected.turn()) == ["Tx.CommitOk", "Tx.CommitOk"]
    assert broker.clients[0].commands == [("publish", 1), ("publish", 1)]


def test_empty_commit_is_answered(broker, selected):
    assert selected.ask(1, Tx.Commit()).name == "Tx.CommitOk"
    assert broker.clients == []


def test_settles_are_applied_at_commit_in_one_command(queue, broker, consuming):
    frames = consuming.call(1, Ack(1), Reject(2, False), Nack(4, False, False), Reject(3, True))
    assert frames == []
    assert queue.settled == []
    assert "Tx.CommitOk" in names(consuming.call(1, Tx.Commit()))
    assert queue.settled == [(ACCEPT, 1), (REJECT, 2), (REJECT, 4), (MODIFY_FAILED, 3)]
    client = next(each for each in broker.clients if each.consumers)
    assert client.commands == [("settle", 4)]


def test_settles_follow_only_when_every_publish_is_safe(kit, queue, broker, consuming):
    consuming.feed(kit.publish(1, "", "r", b"next"))
    consuming.call(1, Ack(1))
    broker.gate.opened = False
    assert consuming.call(1, Tx.Commit()) == []
    assert len(broker.queues["r"].ready) == 1
    assert queue.settled == []
    broker.gate.opened = True
    assert names(consuming.turn()) == ["Tx.CommitOk"]
    assert queue.settled == [(ACCEPT, 1)]


def test_refused_publish_fails_the_commit_and_settles_nothing(kit, queue, broker, consuming):
    broker.queues["r"].refusing = True
    consuming.feed(kit.publish(1, "", "r", b"next"))
    consuming.call(1, Ack(1))
    close = consuming.ask(1, Tx.Commit())
    assert (close.reply_code, close.class_id, close.method_id) == (406, 90, 20)
    assert close.reply_text == "PRECONDITION_FAILED - partial tx completion"
    assert queue.settled == []
    assert len(queue.ready) == 4  # the channel gave all back


def test_rollback_forgets_publishes_and_settles(kit, queue, consuming):
    consuming.feed(kit.publish(1, "", "q", b"a"))
    consuming.call(1, Ack(2), Nack(3, False, True))
    assert consuming.ask(1, Tx.Rollback()).name == "Tx.RollbackOk"
    assert names(consuming.call(1, Tx.Commit())) == ["Tx.CommitOk"]
    assert queue.settled == []
    assert len(queue.ready) == 0


def test_what_was_rolled_back_is_unsettled_as_before(queue, consuming):
    consuming.call(1, Ack(3), Ack(1))
    consuming.call(1, Tx.Rollback())
    consuming.call(1, Ack(3, True))
    consuming.call(1, Tx.Commit())
    assert queue.settled == [(ACCEPT, 1), (ACCEPT, 2), (ACCEPT, 3)]


def test_unknown_delivery_tag_is_told_at_once(consuming):
    consuming.call(1, Ack(2))
    close = consuming.ask(1, Ack(2))
    assert (close.reply_code, close.reply_text) == (
        406,
        "PRECONDITION_FAILED - unknown delivery tag 2",
    )


def test_uncommitted_settles_do_not_raise_the_channel_limit(queue, fill, selected):
    fill(3)
    selected.call(1, commands.Basic.Qos(0, 1, True))
    frames = selected.call(1, commands.Basic.Consume(queue="q", consumer_tag="c"))
    assert tags(frames) == [1]
    assert selected.call(1, Ack(1)) == []
    assert tags(selected.call(1, Tx.Commit())) == [2]


def test_mandatory_publish_without_route_comes_back_at_commit(kit, selected):
    selected.feed(kit.publish(1, "", "nobody", b"x", mandatory=True))
    assert selected.turn() == []
    frames = selected.call(1, Tx.Commit())
    assert names(frames) == ["Basic.Return", "ContentHeader", "ContentBody", "Tx.CommitOk"]


def test_missing_exchange_is_told_at_publish(kit, selected):
    selected.feed(kit.publish(1, "nope", "q", b"x"))
    [(_, close)] = selected.turn()
    assert close.reply_code == 404


@pytest.mark.parametrize("method", [Tx.Commit(), Tx.Rollback()])
def test_channel_that_is_not_transactional_has_nothing_to_end(peer, method):
    close = peer.ask(1, method)
    assert (close.reply_code, close.reply_text) == (
        406,
        "PRECONDITION_FAILED - channel is not transactional",
    )


def test_confirms_and_transactions_exclude_each_other(new_peer):
    peer = new_peer().open(channels=2)
    peer.call(1, commands.Confirm.Select())
    close = peer.ask(1, Tx.Select())
    assert close.reply_text == "PRECONDITION_FAILED - cannot switch from confirm to tx mode"
    peer.call(2, Tx.Select())
    close = peer.ask(2, commands.Confirm.Select())
    assert close.reply_text == "PRECONDITION_FAILED - cannot switch from tx to confirm mode"


def test_second_select_changes_nothing(kit, queue, selected):
    selected.feed(kit.publish(1, "", "q", b"a"))
    assert selected.ask(1, Tx.Select()).name == "Tx.SelectOk"
    selected.call(1, Tx.Commit())
    assert len(queue.ready) == 1


def test_too_many_operations_close_the_channel(kit, queue, selected):
    chunk = kit.publish(1, "", "q", b"") * 64
    for _ in range(limits.TX_OPERATIONS_MAX // 64):
        selected.feed(chunk)
    assert selected.turn() == []
    selected.feed(kit.publish(1, "", "q", b""))
    [(_, close)] = selected.turn()
    assert close.reply_code == 406
    assert "more than 16384 operations" in close.reply_text
    assert len(queue.ready) == 0


def test_too_many_bytes_close_the_channel(kit, broker, queue, new_peer):
    broker.limits.message_bytes_max = 1 << 20
    peer = new_peer().open()
    peer.call(1, Tx.Select())
    for _ in range(4):
        peer.feed(kit.publish(1, "", "q", b"x" * (256 << 10)))
    assert peer.turn() == []
    peer.feed(kit.publish(1, "", "q", b"x" * (256 << 10)))
    [(_, close)] = peer.turn()
    assert close.reply_code == 406
    assert f"more than {(1 << 20) + limits.TX_EXTRA_BYTES} bytes" in close.reply_text
    assert len(queue.ready) == 0


@pytest.mark.parametrize("message_bytes_max", [1024, limits.MESSAGE_BYTES_MAX])
def test_transaction_takes_any_one_message_and_fits_a_log_entry(message_bytes_max):
    bytes_max = tx_bytes_max(message_bytes_max)
    properties = limits.FRAME_BYTES_MAX
    assert message_bytes_max + properties + 2 * 256 + 32 <= bytes_max
    largest = max(message_bytes_max, limits.COMMAND_BYTES_MAX)
    assert bytes_max + 64 <= largest + limits.ENTRY_OVERHEAD_BYTES


def test_closing_the_channel_drops_its_transaction(kit, queue, consuming):
    consuming.feed(kit.publish(1, "", "q", b"a"))
    consuming.call(1, Ack(1))
    consuming.call(1, commands.Channel.Close(200, "", 0, 0))
    assert queue.settled == []
    assert len(queue.ready) == 4


def test_connection_lost_amid_a_commit_leaves_nothing_behind(kit, queue, broker, consuming):
    consuming.feed(kit.publish(1, "", "q", b"a"))
    consuming.call(1, Ack(1))
    broker.gate.opened = False
    consuming.call(1, Tx.Commit())
    consuming.connection.lost()
    broker.gate.opened = True
    assert consuming.turn() == []
    assert queue.settled == []
    assert len(queue.ready) == 5  # what was published stays published
    assert consuming.shell.operations == []


def test_deliveries_of_a_lost_consumer_are_not_settled(queue, broker, consuming):
    consuming.call(1, Ack(1))
    broker.remove_queue("q")
    consuming.turn()
    assert names(consuming.call(1, Tx.Commit())) == ["Tx.CommitOk"]
    assert queue.settled == []
