"""A missing object may have been declared through another node a moment ago."""

from __future__ import annotations

import pytest
from pamqp import commands

from headrace_broker.catalog.event import BindingAdded
from headrace_broker.model.definition import Binding, Exchange
from headrace_broker.model.limits import CONNECTION_BUFFER_BYTES

Queue = commands.Queue


def names(frames):
    return [value.name for _, value in frames]


@pytest.fixture
def late(broker):
    """A queue that another node has declared and this one does not know of yet."""
    broker.behind.append(lambda: broker.add_queue("late"))


@pytest.fixture
def gone(broker):
    """A queue that another node has deleted and this one still knows."""
    broker.add_queue("gone")
    broker.behind.append(lambda: broker.remove_queue("gone"))


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        (Queue.Declare(queue="late", passive=True), "Queue.DeclareOk"),
        (commands.Basic.Consume(queue="late"), "Basic.ConsumeOk"),
        (commands.Basic.Get(queue="late"), "Basic.GetEmpty"),
        (Queue.Purge(queue="late"), "Queue.PurgeOk"),
    ],
)
def test_method_finds_what_was_declared_elsewhere(late, broker, peer, method, answer):
    assert peer.ask(1, method).name == answer
    assert broker.caught_up == 1


def test_bind_finds_what_was_declared_elsewhere(late, broker, peer):
    method = Queue.Bind(queue="late", exchange="amq.direct", routing_key="k")
    assert peer.ask(1, method).name == "Queue.BindOk"
    assert [binding.destination for binding in broker.bindings] == ["late"]


def test_delete_deletes_what_was_declared_elsewhere(late, broker, peer):
    assert peer.ask(1, Queue.Delete(queue="late")).name == "Queue.DeleteOk"
    assert broker.queues == {}


def test_name_that_a_server_gave_elsewhere_is_not_reserved(broker, peer):
    broker.behind.append(lambda: broker.add_queue("amq.gen-1", durable=False))
    assert peer.ask(1, Queue.Declare(queue="amq.gen-1")).name == "Queue.DeclareOk"


def test_declare_of_a_queue_that_is_deleted_at_once_declares_it_once(broker, peer):
    broker.deletes_declared = True
    answer = peer.ask(1, Queue.Declare(queue="q"))
    assert (answer.name, answer.message_count, answer.consumer_count) == ("Queue.DeclareOk", 0, 0)
    assert broker.log.count("declare q") == 1
    assert broker.queues == {}


def test_passive_declare_misses_what_was_deleted_elsewhere(gone, broker, peer):
    assert peer.ask(1, Queue.Declare(queue="gone", passive=True)).reply_code == 404


def test_passive_declare_of_an_exchange_is_as_new_as_the_call(broker, peer):
    method = commands.Exchange.Declare(exchange="x", exchange_type="direct", passive=True)
    broker.behind.append(lambda: broker.add_exchange(Exchange("/", "x", "direct")))
    assert peer.ask(1, method).name == "Exchange.DeclareOk"
    broker.behind.append(lambda: broker.exchanges.pop("x"))
    assert peer.ask(1, method).reply_code == 404


def test_consume_goes_on_to_the_queue_that_was_declared_anew(broker, peer):
    broker.add_queue("q").gone = True

    def declare_anew():
        broker.remove_queue("q")
        broker.add_queue("q")

    broker.behind.append(declare_anew)
    assert peer.ask(1, commands.Basic.Consume(queue="q")).name == "Basic.ConsumeOk"
    assert len(broker.queues["q"].consumers) == 1


@pytest.mark.parametrize("mandatory", [False, True])
def test_publish_reaches_a_queue_that_was_declared_elsewhere(kit, late, broker, peer, mandatory):
    peer.call(1, commands.Confirm.Select())
    chunk = kit.publish(1, "", "late", b"first", mandatory) + kit.publish(1, "", "late", b"2nd")
    broker.add_queue("known")
    peer.feed(chunk + kit.publish(1, "", "known", b"x"))
    assert names(peer.turn()) == ["Basic.Ack"]
    assert len(broker.queues["late"].ready) == 2
    assert len(broker.queues["known"].ready) == 1
    assert broker.caught_up == 1


def test_publish_finds_exchange_and_binding_of_elsewhere(kit, broker, peer):
    queue = broker.add_queue("q")

    def bind():
        broker.add_exchange(Exchange("/", "x", "headers"))
        binding = Binding("/", "x", "queue", "q", "", {"k": "v"})
        broker.router.on_events([BindingAdded(binding)])

    broker.behind.append(bind)
    properties = commands.Basic.Properties(headers={"k": "v"})
    peer.feed(kit.publish(1, "x", "", b"body", properties=properties))
    assert peer.turn() == []
    assert len(queue.ready) == 1


def test_publish_to_a_headers_exchange_keeps_its_order_when_one_has_no_queue(kit, broker, peer):
    queue = broker.add_queue("q")
    binding = Binding("/", "amq.headers", "queue", "q", "", {"k": "v"})
    broker.router.on_events([BindingAdded(binding)])
    with_headers = commands.Basic.Properties(headers={"k": "v"})
    peer.feed(
        kit.publish(1, "amq.headers", "", b"1", properties=with_headers)
        + kit.publish(1, "amq.headers", "", b"lost")
        + kit.publish(1, "amq.headers", "", b"2", properties=with_headers)
    )
    peer.turn()
    assert len(queue.ready) == 2
    assert broker.caught_up == 1


def test_what_is_found_waits_for_nothing(kit, broker, peer):
    broker.add_queue("q")
    peer.feed(kit.publish(1, "", "q", b"x", mandatory=True))
    peer.call(1, commands.Basic.Get(queue="q"), commands.Basic.Consume(queue="q"))
    peer.call(1, Queue.Declare(queue="q"), Queue.Purge(queue="q"), Queue.Delete(queue="q"))
    assert broker.caught_up == 0


def test_reading_stops_while_publishes_wait_that_are_more_than_may_be_held(kit, broker, peer):
    broker.gate.opened = False
    half = kit.publish(1, "", "nobody", bytes(CONNECTION_BUFFER_BYTES // 2))
    peer.feed(half)
    peer.turn()
    assert peer.shell.reading
    peer.feed(half)
    assert not peer.shell.reading
    broker.gate.opened = True
    peer.turn()
    assert peer.shell.reading


@pytest.mark.parametrize(
    "method", [commands.Basic.Get(queue="q"), Queue.Declare(queue="q", passive=True)]
)
def test_without_a_quorum_the_answer_is_not_404(broker, peer, method):
    broker.lost = True
    (close,) = [value for _, value in peer.call(1, method)]
    assert (close.name, close.reply_code) == ("Connection.Close", 541)
    assert "no quorum" in close.reply_text


def test_publish_without_a_quorum_is_not_confirmed(kit, broker, peer):
    peer.call(1, commands.Confirm.Select())
    broker.lost = True
    peer.feed(kit.publish(1, "", "nobody", b"x"))
    (close,) = [value for _, value in peer.turn()]
    assert (close.name, close.reply_code) == ("Connection.Close", 541)


@pytest.mark.parametrize("publishing", [False, True])
def test_connection_that_ends_meanwhile_leaves_nothing_behind(kit, late, broker, peer, publishing):
    broker.gate.opened = False
    if publishing:
        peer.feed(kit.publish(1, "", "late", b"x"))
    else:
        peer.call(1, commands.Basic.Get(queue="late"))
    peer.turn()
    peer.connection.lost()
    broker.gate.opened = True
    peer.turn()
    assert broker.clients == []
    assert peer.shell.operations == []
