"""Buffered publishes when a method fails or the client disconnects, and their bounds."""

from __future__ import annotations

from pamqp import commands
from tests.broker.gateways.fake_queue import FakeClient

from headrace_broker.codecs.batch import message_body
from headrace_broker.codecs.method import encode_method

Queue, Tx = commands.Queue, commands.Tx


def names(frames):
    return [value.name for _, value in frames]


def bodies(queue):
    return [message_body(each.blob, 0, each.position) for each in queue.ready]


def send(kit, peer, key, *payloads, channel=1):
    for payload in payloads:
        peer.feed(kit.publish(channel, "", key, payload))


def test_publishes_behind_a_method_that_fails_are_void(kit, broker, queue, peer):
    broker.block("low")
    send(kit, peer, "q", b"1")
    peer.feed(encode_method(1, Queue.Declare(queue="none", passive=True)))
    send(kit, peer, "q", b"2")
    broker.block("")
    assert names(peer.turn())[-1] == "Channel.Close"
    assert bodies(queue) == [b"1"]
    assert broker.ledger.dropped_messages == 0
    assert peer.info.buffered_messages == 0


def test_publishes_behind_a_method_that_fails_at_once_are_void(kit, broker, queue, peer):
    broker.block("low")
    send(kit, peer, "q", b"1")
    peer.feed(encode_method(1, Tx.Commit()))
    send(kit, peer, "q", b"2")
    broker.block("")
    assert names(peer.turn())[-1] == "Channel.Close"
    assert bodies(queue) == [b"1"]


def test_connection_lost_during_an_operation_does_not_hand_over_what_is_behind(
    kit, broker, queue, peer
):
    broker.block("low")
    send(kit, peer, "q", b"1")
    peer.feed(encode_method(1, Queue.Declare(queue="new")))
    send(kit, peer, "new", b"2")
    broker.gate.opened = False
    broker.block("")
    peer.turn()
    peer.connection.lost()
    broker.gate.opened = True
    peer.turn()
    assert bodies(queue) == [b"1"]
    assert broker.ledger.dropped_messages == 1
    assert broker.intake.shares.held == 0


def test_a_fault_in_what_one_connection_holds_stops_no_other(
    kit, broker, queue, new_peer, monkeypatch, caplog
):
    faulty, other = new_peer().open(), new_peer().open()
    queue.gate.set_room(False)
    for payload in (b"1", b"2"):
        send(kit, faulty, "q", payload)
    send(kit, other, "q", b"3")
    publish = FakeClient.publish
    faults = [RuntimeError("one"), RuntimeError("two")]

    def fail(client, *arguments):
        if faults:
            raise faults.pop(0)
        return publish(client, *arguments)

    monkeypatch.setattr(FakeClient, "publish", fail)
    queue.gate.set_room(True)
    queue.gate.serve(1 << 20)
    assert names(faulty.turn()) == ["Connection.Close"]
    other.turn()
    assert bodies(queue) == [b"3"]
    assert "two" in caplog.text
    assert broker.ledger.dropped_messages == 1


def test_methods_that_wait_count_as_held(kit, broker, queue, new_peer):
    peer = new_peer().open(channels=50)
    broker.block("low")
    large = Queue.Declare(queue="x", arguments={"a": "y" * 120_000})
    sent = 0
    for channel in range(1, 51):
        if peer.shell.reading:
            send(kit, peer, "q", b"1", channel=channel)
            peer.feed(encode_method(channel, large))
            sent += 1
    assert not peer.shell.reading
    assert broker.intake.shares.held < 2 * broker.flow.connection_buffer_bytes
    broker.block("")
    peer.turn()
    assert peer.shell.reading
    assert broker.intake.shares.held == 0
    assert len(queue.ready) == sent
