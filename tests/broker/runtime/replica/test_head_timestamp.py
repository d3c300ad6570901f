"""The timestamp that the oldest message of a queue carries."""

from __future__ import annotations

from headrace_broker.model.message import Publish
from headrace_broker.runtime.replica.head_timestamp import HeadTimestamps

STAMPED = b"\x00\x40" + (1_700_000_000).to_bytes(8, "big")


def publish(session, world, *properties):
    messages = [Publish(1, b"\x00\x04work", False, False, block, b"") for block in properties]
    session.publish(messages, None)
    session.flush()
    world.settle_down()


def test_the_oldest_messages_timestamp_is_read_once(world, listener):
    session = world.open(1, listener)
    host = world.hosts[1]
    heads = HeadTimestamps()
    assert heads.timestamp(host) == -1
    publish(session, world, STAMPED, b"\x00\x00")
    assert heads.timestamp(host) == 1_700_000_000
    world.log[0].data = b""  # a second look reads nothing
    assert heads.timestamp(host) == 1_700_000_000


def test_another_oldest_message_is_looked_at_anew(world, listener):
    session = world.open(1, listener)
    host = world.hosts[1]
    heads = HeadTimestamps()
    publish(session, world, STAMPED, b"\x00\x00")
    assert heads.timestamp(host) == 1_700_000_000
    world.run(session.get())
    assert heads.timestamp(host) == -1


def test_a_timestamp_on_the_disk_is_known_once_it_was_read(world, listener):
    session = world.open(1, listener)
    host = world.hosts[1]
    heads = HeadTimestamps()
    publish(session, world, STAMPED)
    world.disk_is_slow = True
    for _ in range(3):
        assert heads.timestamp(host) == -1
    assert [len(waiting) for waiting in world.reading.values()] == [1]
    world.read_all()
    world.disk_is_slow = True  # again: it is remembered
    assert heads.timestamp(host) == 1_700_000_000
    publish(session, world, b"\x00\x00")
    world.disk_is_slow = False
    world.run(session.get())
    world.disk_is_slow = True
    assert heads.timestamp(host) == -1
    world.gone.update(world.reading)
    world.read_all()
    assert heads._reading == set()
