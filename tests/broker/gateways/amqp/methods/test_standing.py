"""Work of AMQP clients ends with the permission or the user that it needs."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from headrace_broker.catalog.event import PermissionChanged, TopicPermissionChanged, UserChanged
from headrace_broker.codecs.method import encode_method
from headrace_broker.model.definition import Permission, TopicPermission, User

Basic = commands.Basic
Channel = commands.Channel
Tx = commands.Tx

TAKEN = "ACCESS_REFUSED - read access to queue 'q' in vhost '/' refused for user 'guest': "
TAKEN += "the permission was taken away"


@pytest.fixture
def permit(broker: Any) -> Any:
    """Set the connected user's permissions, and notify this node."""

    def set_to(read: str = ".*", write: str = ".*") -> None:
        permission = Permission("guest", "/", ".*", write, read)
        broker.rules.guarded = True
        broker.rules.put_permission(permission)
        broker.change(PermissionChanged("guest", "/", permission))

    set_to()
    return set_to


@pytest.fixture
def shut_out(broker: Any, permit: Any) -> Any:
    def take() -> None:
        broker.rules.drop_permission(broker.rules.permission("guest", "/"))
        broker.change(PermissionChanged("guest", "/", None))

    return take


def closed(frames: Any) -> tuple[int, int, str]:
    """Channel, code and text of the one frame, which closes something."""
    [(channel, close)] = frames
    return channel, close.reply_code, close.reply_text


def test_consumer_that_only_waits_ends_with_its_channel(broker, queue, fill, peer, permit) -> None:
    peer.call(1, Basic.Consume(queue="q", consumer_tag="c"))
    fill(2)
    peer.turn()
    permit(read="^other$")
    assert closed(peer.turn()) == (1, 403, TAKEN)
    assert [message.number for message in queue.ready] == [1, 2]
    fill(1)
    assert peer.turn() == []
    peer.call(1, Channel.CloseOk())
    assert isinstance(peer.ask(1, Channel.Open()), Channel.OpenOk)
    assert len(broker.standings) == 2  # the sessions of this client and of the publisher


def test_consumer_that_is_still_covered_goes_on(queue, fill, peer, permit) -> None:
    peer.call(1, Basic.Consume(queue="q", consumer_tag="c"))
    permit(read="^q$")
    assert peer.turn() == []
    fill(1)
    assert next(value.name for _, value in peer.turn()) == "Basic.Deliver"


def test_other_channels_of_the_connection_go_on(broker, queue, peer, permit) -> None:
    broker.add_queue("kept")
    peer.ask(2, Channel.Open())
    peer.call(1, Basic.Consume(queue="q"))
    peer.call(2, Basic.Consume(queue="kept"))
    permit(read="^kept$")
    assert closed(peer.turn())[:2] == (1, 403)
    assert peer.call(2, Basic.Qos(prefetch_count=1))[0][1].name == "Basic.QosOk"


def test_consumer_that_is_being_attached_ends_as_well(broker, queue, fill, peer, permit) -> None:
    fill(1)
    broker.gate.opened = False
    assert peer.call(1, Basic.Consume(queue="q")) == []
    permit(read="")
    assert closed(peer.turn()) == (1, 403, TAKEN)
    broker.gate.opened = True
    assert peer.turn() == []
    assert len(queue.ready) == 1


@pytest.mark.parametrize("how", ["cancel", "close", "lost"])
def test_consumer_that_has_ended_is_not_judged(broker, queue, peer, permit, how) -> None:
    peer.call(1, Basic.Consume(queue="q", consumer_tag="c"))
    if how == "cancel":
        peer.call(1, Basic.Cancel(consumer_tag="c"))
    elif how == "close":
        peer.call(1, Channel.Close(0, "", 0, 0))
    else:
        peer.connection.lost()
        peer.turn()
    permit(read="")
    assert peer.turn() == []
    assert len(broker.standings) == (0 if how == "lost" else 1)


def test_consumer_of_direct_replies_ends_with_the_last_permission(
    broker, peer, permit, shut_out
) -> None:
    peer.call(1, Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True))
    permit(read="", write="")
    assert peer.turn() == []
    shut_out()
    text = "ACCESS_REFUSED - access to vhost '/' refused for user 'guest': "
    assert closed(peer.turn()) == (1, 403, text + "the permission was taken away")


def test_get_that_is_under_way_gets_nothing(broker, queue, fill, peer, permit) -> None:
    fill(1)
    broker.gate.opened = False
    assert peer.call(1, Basic.Get(queue="q", no_ack=True)) == []
    permit(read="")
    broker.gate.opened = True
    channel, code, text = closed(peer.turn())
    assert (channel, code) == (1, 403)
    assert text.startswith("ACCESS_REFUSED - read access to queue 'q'")
    assert [message.number for message in queue.ready] == [1]


def publish(peer: Any, *chunks: Any) -> Any:
    peer.feed(b"".join(chunks))
    return peer.turn()


def test_publishes_are_judged_one_by_one_whatever_was_remembered(queue, peer, permit, kit) -> None:
    assert publish(peer, kit.publish(1, "", "q", b"m"), kit.publish(1, "", "q", b"m")) == []
    permit(write="^other$")
    channel, code, text = closed(publish(peer, kit.publish(1, "", "q", b"m")))
    assert (channel, code) == (1, 403)
    assert text.startswith("ACCESS_REFUSED - write access to exchange 'amq.default'")
    assert len(queue.ready) == 2


def test_transaction_is_judged_when_it_is_committed(broker, queue, peer, permit, kit) -> None:
    peer.ask(1, Tx.Select())
    assert publish(peer, kit.publish(1, "", "q", b"m")) == []
    permit(write="^other$")
    channel, code, text = closed(peer.call(1, Tx.Commit()))
    assert (channel, code) == (1, 403)
    assert text.startswith("ACCESS_REFUSED - write access to exchange 'amq.default'")
    assert len(queue.ready) == 0


def test_transaction_is_judged_by_topic_permissions_when_it_is_committed(
    broker, queue, peer, permit, kit
) -> None:
    peer.ask(1, Tx.Select())
    assert publish(peer, kit.publish(1, "amq.topic", "a.b", b"m")) == []
    told = TopicPermission("guest", "/", "amq.topic", "^c", "")
    broker.rules.put_topic_permission(told)
    broker.rules.put_exchange(broker.exchanges["amq.topic"])
    broker.change(TopicPermissionChanged("guest", "/", "amq.topic", told))
    assert closed(peer.call(1, Tx.Commit()))[:2] == (1, 403)


def test_transaction_that_is_still_allowed_is_committed(queue, peer, permit, kit) -> None:
    peer.ask(1, Tx.Select())
    assert publish(peer, kit.publish(1, "", "q", b"m")) == []
    permit(write="^amq.default$")
    assert isinstance(peer.ask(1, Tx.Commit()), Tx.CommitOk)
    assert len(queue.ready) == 1


def test_deleted_user_is_told_so_once(broker, queue, peer) -> None:
    peer.call(1, Basic.Consume(queue="q"))
    broker.rules.drop_user("guest")
    broker.change(UserChanged("guest", None))
    assert closed(peer.turn()) == (0, 320, "CONNECTION_FORCED - user 'guest' was deleted")
    assert len(broker.standings) == 0


def test_sessions_that_were_ended_are_told_so(broker, peer) -> None:
    broker.rules.applied_index = 7
    broker.rules.end_sessions("guest")
    broker.change(UserChanged("guest", broker.rules.user("guest")))
    channel, code, text = closed(peer.turn())
    assert (channel, code) == (0, 320)
    assert text.startswith("CONNECTION_FORCED - sessions of user 'guest' from before were ended")


def test_log_in_from_before_the_end_of_the_sessions_opens_nothing(broker, new_peer) -> None:
    peer = new_peer()
    peer.feed(b"AMQP\0\0\x09\x01")
    peer.turn()
    peer.ask(0, peer.start_ok())
    broker.rules.applied_index = 7
    broker.rules.end_sessions("guest")
    tune_ok = encode_method(0, commands.Connection.TuneOk(2047, 131072, 60))
    peer.feed(tune_ok + encode_method(0, commands.Connection.Open("/")))
    assert closed(peer.turn())[:2] == (0, 320)
    assert broker.connections == {}


def test_change_of_the_password_alone_ends_nothing(broker, queue, peer) -> None:
    peer.call(1, Basic.Consume(queue="q"))
    broker.rules.put_user(User("guest", b"other", b"hash"))
    broker.change(UserChanged("guest", broker.rules.user("guest")))
    assert peer.turn() == []
