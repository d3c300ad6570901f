"""A batch of which some messages are looked at by themselves: what passes, waits and is refused."""

from __future__ import annotations

import pytest
from pamqp import commands

from headrace_broker.codecs.batch import message_body
from headrace_broker.model.flow import LIMIT_QUEUE
from headrace_broker.model.limits import CHANNEL_LINKS_MAX

Basic = commands.Basic


def names(frames):
    return [value.name for _, value in frames]


def bodies(queue):
    return [message_body(each.blob, 0, each.position) for each in queue.ready]


@pytest.fixture
def other(broker):
    return broker.add_queue("other")


def mixed(kit):
    """Publishes of one route in one chunk: plain, with a copy to `other`, invalid, plain."""

    def one(body, **properties):
        return kit.publish(1, "", "q", body, properties=Basic.Properties(**properties))

    copy = one(b"2", headers={"CC": ["other"]})
    return one(b"1") + copy + one(b"3") + one(b"4", expiration="soon") + one(b"5")


def test_a_batch_passes_up_to_the_message_that_is_refused(kit, broker, queue, other, peer):
    peer.feed(mixed(kit))
    [(_, close)] = peer.turn()
    assert "invalid expiration 'soon'" in close.reply_text
    assert (bodies(queue), bodies(other)) == ([b"1", b"2", b"3"], [b"2"])
    assert broker.ledger.dropped_messages == 0


def test_a_message_behind_one_that_waits_is_refused_in_its_turn(kit, broker, queue, other, peer):
    other.gate.set_room(False)
    peer.feed(mixed(kit))
    assert peer.turn() == []
    assert (bodies(queue), bodies(other)) == ([b"1"], [])
    assert (peer.info.buffered_messages, peer.info.flow.limit) == (4, LIMIT_QUEUE)
    other.gate.set_room(True)
    other.gate.serve(1 << 20)
    assert names(peer.turn()) == ["Channel.Close"]
    assert (bodies(queue), bodies(other)) == ([b"1", b"2", b"3"], [b"2"])
    assert peer.info.buffered_messages == 0


def test_a_refusal_waits_for_an_alarm_as_publishes_do(kit, broker, queue, peer):
    broker.block("low")
    peer.feed(kit.publish(1, "none", "q", b"1"))
    assert names(peer.turn()) == ["Connection.Blocked"]
    broker.block("")
    assert sorted(names(peer.turn())) == ["Channel.Close", "Connection.Unblocked"]


def test_a_queue_that_is_full_keeps_its_session_while_a_run_goes_to_many(kit, broker, peer):
    for number in range(CHANNEL_LINKS_MAX + 2):
        broker.add_queue(f"q{number}")
        peer.call(1, commands.Queue.Bind(queue=f"q{number}", exchange="amq.fanout"))
    last = broker.add_queue("last")
    broker.congested = True
    peer.feed(kit.publish(1, "amq.fanout", "", b"x"))
    peer.turn()
    full = [client for client in broker.clients if not client.closed]
    assert len(full) == CHANNEL_LINKS_MAX + 2
    broker.end_congestion()
    count = 2 * int(broker.flow.credit)
    for _ in range(count):
        peer.feed(kit.publish(1, "", "last", b"x"))
    peer.turn()
    assert (peer.info.buffered_messages, len(last.ready)) == (0, count)
