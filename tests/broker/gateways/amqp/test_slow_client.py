"""Clients that read slowly: what waits for them is bounded, and comes in order."""

from __future__ import annotations

from pamqp import commands

from headrace_broker.model.limits import OUTPUT_DELIVERY_BYTES_MAX

Consume = commands.Basic.Consume


def delivered(frames):
    """(delivery tag, consumer tag, body, redelivered) of the deliveries."""
    values = [value for _, value in frames]
    return [
        (value.delivery_tag, value.consumer_tag, values[at + 2].value, value.redelivered)
        for at, value in enumerate(values)
        if value.name == "Basic.Deliver"
    ]


def tags(frames):
    return [each[0] for each in delivered(frames)]


def test_client_that_does_not_read_holds_a_bounded_number_of_bytes(broker, queue, fill, peer):
    fill(20_000, size=1000)
    peer.shell.stuck = True
    seen = tags(peer.call(1, Consume(queue="q", consumer_tag="c")))
    frame_overhead = 100
    bound = OUTPUT_DELIVERY_BYTES_MAX + broker.window_bytes * (1000 + frame_overhead) // 1000
    assert OUTPUT_DELIVERY_BYTES_MAX < peer.shell.buffered <= bound
    assert len(queue.ready) > 17_000  # the rest waits in the queue
    for _ in range(40):
        peer.shell.drain()
        peer.shell.stuck = True
        seen += tags(peer.turn())
        assert peer.shell.buffered <= bound
    assert seen == list(range(1, 20_001))


def test_slow_channel_does_not_keep_its_neighbour_waiting(broker, queue, fill, new_peer):
    peer = new_peer().open(channels=2)
    broker.add_queue("small")
    fill(5000, size=1000)
    peer.shell.stuck = True
    peer.call(1, Consume(queue="q", consumer_tag="big"))
    peer.call(2, Consume(queue="small", consumer_tag="small"))
    fill(1, "small")
    assert delivered(peer.turn()) == []
    peer.shell.drain()
    peer.shell.stuck = True
    assert "small" in [each[1] for each in delivered(peer.turn())]


def test_large_messages_go_one_by_one(broker, queue, fill, peer):
    broker.window_bytes = 8 << 20
    fill(6, size=300_000)
    peer.shell.stuck = True
    frames = peer.call(1, Consume(queue="q", no_ack=True))
    assert tags(frames) == [1, 2, 3, 4]  # the one that fills the buffer is the last
    peer.shell.drain()
    assert tags(peer.turn()) == [5, 6]


def test_deliveries_of_a_turn_leave_in_one_write(queue, fill, peer):
    peer.call(1, Consume(queue="q"))
    writes = peer.shell.writes
    for _ in range(5):
        fill(3)
    assert len(tags(peer.turn())) == 15
    assert peer.shell.writes == writes + 1
