"""The timestamp that the oldest message of a queue carries."""

from __future__ import annotations

from headrace_broker.model.message import Publish
from headrace_broker.runtime.head_timestamp import HeadTimestamps

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
