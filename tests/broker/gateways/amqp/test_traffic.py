"""Counters of a channel, and of its connection after the channel is closed."""

from __future__ import annotations

from typing import Any

from pamqp import commands

from headrace_broker.model.stats import CLIENT_FIGURES

Basic = commands.Basic


def passed(peer: Any) -> dict[str, int]:
    """The counters of a connection that are not 0."""
    counts = zip(CLIENT_FIGURES, peer.info.traffic(), strict=True)
    return {name: count for name, count in counts if count}


def test_publishes_are_counted_with_what_becomes_of_them(kit, queue, peer):
    peer.call(1, commands.Confirm.Select())
    peer.feed(b"".join(kit.publish(1, "", "q", b"x") for _ in range(3)))
    peer.feed(kit.publish(1, "", "nobody", b"x", mandatory=True))
    peer.feed(b"".join(kit.publish(1, "", "nobody", b"x") for _ in range(2)))
    peer.turn()
    assert passed(peer) == {
        "publish": 6,
        "confirm": 6,
        "return_unroutable": 1,
        "drop_unroutable": 2,
    }


def test_an_exchange_counts_what_comes_and_how_often_it_goes_on(kit, broker, peer):
    for name in ("a", "b"):
        broker.add_queue(name)
        peer.call(1, commands.Queue.Bind(queue=name, exchange="amq.fanout"))
    peer.feed(b"".join(kit.publish(1, "amq.fanout", "", b"x") for _ in range(5)))
    peer.turn()
    route = broker.router.route("/", b"\x0aamq.fanout\x00")
    assert route.traffic.counts() == (5, 10)


def test_a_transaction_counts_what_it_commits(kit, queue, peer):
    peer.call(1, commands.Tx.Select())
    peer.feed(kit.publish(1, "", "q", b"x"))
    peer.call(1, commands.Tx.Rollback())
    assert passed(peer) == {}
    peer.feed(kit.publish(1, "", "q", b"x") + kit.publish(1, "", "q", b"y"))
    peer.call(1, commands.Tx.Commit())
    assert passed(peer) == {"publish": 2}


def test_deliveries_and_acknowledgements_are_counted(queue, fill, peer):
    fill(3)
    peer.call(1, Basic.Consume(queue="q", consumer_tag="c"))
    peer.call(1, Basic.Ack(2, True), Basic.Reject(3, True))
    assert passed(peer) == {"deliver": 4, "redeliver": 1, "ack": 2}


def test_what_needs_no_acknowledgement_is_counted_apart(queue, fill, peer):
    fill(2)
    peer.call(1, Basic.Consume(queue="q", consumer_tag="c", no_ack=True))
    assert passed(peer) == {"deliver_no_ack": 2}


def test_messages_that_are_fetched_are_counted_apart(queue, fill, peer):
    fill(2)
    peer.call(1, Basic.Get(queue="q"))
    peer.call(1, Basic.Get(queue="q", no_ack=True))
    peer.call(1, Basic.Get(queue="q"))
    assert passed(peer) == {"get": 1, "get_no_ack": 1, "get_empty": 1}


def test_a_connection_counts_its_closed_channels_and_its_bytes(kit, queue, new_peer):
    peer = new_peer().open(channels=2)
    peer.feed(kit.publish(1, "", "q", b"x") + kit.publish(2, "", "q", b"x"))
    peer.turn()
    assert [number for number, _ in peer.info.control.traffic()] == [1, 2]
    peer.ask(1, commands.Channel.Close(200, "", 0, 0))
    assert [number for number, _ in peer.info.control.traffic()] == [2]
    assert passed(peer) == {"publish": 2}
    before = peer.info.byte_counts()
    written = len(kit.publish(2, "", "q", b"y"))
    peer.feed(kit.publish(2, "", "q", b"y"))
    answer = peer.call(2, Basic.Qos(0, 1, False))
    assert len(answer) == 1
    received, pieces, sent, writes = (
        now - then for now, then in zip(peer.info.byte_counts(), before, strict=True)
    )
    assert (received, pieces) == (written + 19, 2)
    assert (sent, writes) == (12, 1)
