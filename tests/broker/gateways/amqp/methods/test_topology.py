from __future__ import annotations

import pytest
from pamqp import commands

from headrace_broker.model.definition import Binding

Queue = commands.Queue
Exchange = commands.Exchange


def names(frames):
    return [value.name for _, value in frames]


def test_declare_answers_name_and_counts(kit, broker, peer):
    broker.add_queue("q", durable=False)
    peer.feed(kit.publish(1, "", "q", b"x"))
    declared = peer.ask(1, Queue.Declare(queue="q"))
    assert (declared.queue, declared.message_count, declared.consumer_count) == ("q", 1, 0)


def test_declare_passes_everything_on(broker, peer):
    peer.ask(
        1, Queue.Declare(queue="q", durable=True, auto_delete=True, arguments={"x-max-length": 5})
    )
    made = broker.queues["q"].definition
    assert (made.durable, made.auto_delete, made.exclusive) == (True, True, False)
    assert made.arguments == {"x-max-length": 5}


def test_server_names_a_queue_and_remembers_it(broker, peer):
    name = peer.ask(1, Queue.Declare(queue="")).queue
    assert name.startswith("amq.gen-")
    assert peer.ask(1, Queue.Purge(queue="")).name == "Queue.PurgeOk"
    assert peer.ask(1, Queue.Declare(queue=name)).queue == name  # there already: not reserved
    peer.ask(1, Queue.Bind(queue="", exchange="amq.direct", routing_key=""))
    assert broker.bindings == [Binding("/", "amq.direct", "queue", name, name)]


def test_nowait_declare_has_no_answer(broker, peer):
    assert peer.call(1, Queue.Declare(queue="q", nowait=True)) == []
    assert "q" in broker.queues


def test_declare_with_other_arguments_names_them(broker, peer):
    broker.add_queue("q", durable=True)
    close = peer.ask(1, Queue.Declare(queue="q", durable=False))
    assert close.reply_code == 406
    assert close.reply_text == (
        "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': "
        "received 'False' but current is 'True'"
    )


def test_reserved_queue_name_is_refused(peer):
    close = peer.ask(1, Queue.Declare(queue="amq.mine"))
    assert (close.reply_code, close.reply_text) == (
        403,
        "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
    )


@pytest.mark.parametrize(
    "method",
    [
        Queue.Declare(queue="mine", passive=True),
        Queue.Declare(queue="mine", exclusive=True),
        Queue.Bind(queue="mine", exchange="amq.direct"),
        Queue.Unbind(queue="mine", exchange="amq.direct"),
        Queue.Purge(queue="mine"),
        Queue.Delete(queue="mine"),
        commands.Basic.Consume(queue="mine"),
        commands.Basic.Get(queue="mine"),
    ],
    ids=lambda method: method.name,
)
def test_exclusive_queue_is_locked_for_others(broker, new_peer, method):
    owner, other = new_peer().open(), new_peer().open()
    owner.ask(1, Queue.Declare(queue="mine", exclusive=True))
    assert broker.queues["mine"].definition.owner == owner.info.id
    close = other.ask(1, method)
    assert close.reply_code == 405
    assert "'mine'" in close.reply_text


def test_exclusive_queues_go_when_the_broker_closes_whatever_the_client_answers(broker, new_peer):
    peer = new_peer().open()
    peer.ask(1, Queue.Declare(queue="mine", exclusive=True))
    peer.connection.shut_down("closed by an administrator")
    [(_, close)] = peer.turn()
    assert close.reply_code == 320
    assert "mine" not in broker.queues
    peer.call(0, commands.Connection.CloseOk())
    assert peer.shell.closed == "closed"


def test_delete_counts_messages_and_may_be_conditional(kit, broker, peer):
    broker.add_queue("q")
    peer.feed(kit.publish(1, "", "q", b"x"))
    close = peer.ask(1, Queue.Delete(queue="q", if_empty=True))
    assert close.reply_code == 406
    peer.call(1, commands.Channel.CloseOk(), commands.Channel.Open())
    assert peer.ask(1, Queue.Delete(queue="q")).message_count == 1
    assert peer.ask(1, Queue.Delete(queue="q")).message_count == 0  # gone: no error


def test_purge_counts(kit, broker, peer):
    broker.add_queue("q")
    peer.feed(kit.publish(1, "", "q", b"x") * 3)
    assert peer.ask(1, Queue.Purge(queue="q")).message_count == 3


def test_bind_and_unbind(broker, peer):
    broker.add_queue("q")
    peer.ask(1, Queue.Bind(queue="q", exchange="amq.topic", routing_key="a.*"))
    assert broker.bindings == [Binding("/", "amq.topic", "queue", "q", "a.*")]
    unbound = peer.ask(1, Queue.Unbind(queue="q", exchange="amq.topic", routing_key="a.*"))
    assert unbound.name == "Queue.UnbindOk"
    assert broker.bindings == []


@pytest.mark.parametrize(
    ("method", "code", "word"),
    [
        (Queue.Bind(queue="q", exchange=""), 403, "default exchange"),
        (Queue.Bind(queue="q", exchange="nope"), 404, "no exchange 'nope' in vhost '/'"),
        (Queue.Bind(queue="nope", exchange="amq.direct"), 404, "no queue 'nope' in vhost '/'"),
        (Queue.Unbind(queue="q", exchange=""), 403, "default exchange"),
        (Queue.Purge(queue="nope"), 404, "no queue 'nope'"),
        (Exchange.Declare(exchange="", exchange_type="direct"), 403, "default exchange"),
        (Exchange.Declare(exchange="amq.mine", exchange_type="direct"), 403, "'amq.mine'"),
        (Exchange.Declare(exchange="nope", passive=True), 404, "no exchange 'nope'"),
        (Exchange.Declare(exchange="amq.direct", exchange_type="topic"), 406, "'amq.direct'"),
        (Exchange.Delete(exchange=""), 403, "default exchange"),
        (Exchange.Delete(exchange="amq.direct"), 403, "system exchange 'amq.direct'"),
        (Exchange.Bind(destination="", source="amq.direct"), 403, "default exchange"),
        (Exchange.Bind(destination="amq.direct", source=""), 403, "default exchange"),
        (Exchange.Bind(destination="nope", source="amq.direct"), 404, "no exchange 'nope'"),
        (Exchange.Unbind(destination="amq.direct", source=""), 403, "default exchange"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_refusal_closes_the_channel_with_code_and_name(broker, peer, method, code, word):
    broker.add_queue("q")
    close = peer.ask(1, method)
    assert (close.name, close.reply_code) == ("Channel.Close", code)
    assert word in close.reply_text
    assert (close.class_id, close.method_id) == (method.index >> 16, method.index & 0xFFFF)


def test_unknown_exchange_type_closes_the_channel(peer):
    [(channel, close)] = peer.call(1, Exchange.Declare(exchange="x", exchange_type="magic"))
    assert (channel, close.reply_code) == (1, 406)
    assert close.reply_text == "PRECONDITION_FAILED - unknown exchange type 'magic'"


def test_exchange_declare_bind_unbind_delete(broker, peer):
    declare = Exchange.Declare(exchange="x", exchange_type="topic", durable=True)
    assert peer.ask(1, declare).name == "Exchange.DeclareOk"
    assert peer.ask(1, declare).name == "Exchange.DeclareOk"
    assert peer.ask(1, Exchange.Declare(exchange="x", passive=True)).name == "Exchange.DeclareOk"
    bind = Exchange.Bind(destination="x", source="amq.fanout", routing_key="k")
    assert peer.ask(1, bind).name == "Exchange.BindOk"
    assert broker.bindings == [Binding("/", "amq.fanout", "exchange", "x", "k")]
    unbind = Exchange.Unbind(destination="x", source="amq.fanout", routing_key="k")
    assert peer.ask(1, unbind).name == "Exchange.UnbindOk"
    assert broker.bindings == []
    assert peer.ask(1, Exchange.Delete(exchange="x")).name == "Exchange.DeleteOk"
    assert "x" not in broker.exchanges
    assert peer.ask(1, Exchange.Delete(exchange="x")).name == "Exchange.DeleteOk"


def test_nowait_everywhere(broker, peer):
    answers = peer.call(
        1,
        Queue.Declare(queue="q", nowait=True),
        Exchange.Declare(exchange="x", exchange_type="fanout", nowait=True),
        Queue.Bind(queue="q", exchange="x", nowait=True),
        Exchange.Bind(destination="x", source="amq.fanout", nowait=True),
        commands.Confirm.Select(nowait=True),
        Exchange.Unbind(destination="x", source="amq.fanout", nowait=True),
        Queue.Purge(queue="q", nowait=True),
        Queue.Delete(queue="q", nowait=True),
        Exchange.Delete(exchange="x", nowait=True),
    )
    assert answers == []
    assert broker.queues == {}
    assert "x" not in broker.exchanges


def test_queue_name_in_any_script(broker, peer):
    declare = Queue.Declare()
    declare.queue = "größe 数 !"  # the constructor would refuse it
    declared = peer.ask(1, declare)
    assert declared.queue == "größe 数 !"


def test_cancel_of_a_queue_deleted_here_comes_after_delete_ok(broker, new_peer):
    broker.add_queue("q")
    peer = new_peer().open(consumer_cancel_notify=True)
    peer.call(1, commands.Basic.Consume(queue="q", consumer_tag="c"))
    deleted, cancel = [frame for _, frame in peer.call(1, Queue.Delete(queue="q"))]
    assert deleted.name == "Queue.DeleteOk"
    assert (cancel.name, cancel.consumer_tag) == ("Basic.Cancel", "c")


# CR and LF in names: what RabbitMQ 3.10.8 does


def named(method, **fields):
    """A method whose names pamqp would not let a client send."""
    made = method()
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def test_line_ends_are_taken_out_of_names_that_are_declared_and_bound(broker, peer):
    declared = peer.ask(1, named(Queue.Declare, queue="a\r\nb"))
    assert declared.queue == "ab"
    assert set(broker.queues) == {"ab"}
    assert peer.ask(1, named(Queue.Declare, queue="a\nb", passive=True)).queue == "ab"
    peer.ask(1, named(Exchange.Declare, exchange="x\r\ny"))
    assert "xy" in broker.exchanges
    ends = {"queue": "a\rb", "exchange": "x\ny", "routing_key": "k\r\n"}
    peer.ask(1, named(Queue.Bind, **ends))
    [binding] = broker.bindings
    assert (binding.source, binding.destination, binding.routing_key) == ("xy", "ab", "k\r\n")
    peer.ask(1, named(Queue.Unbind, **ends))
    assert broker.bindings == []
    peer.ask(1, named(Exchange.Delete, exchange="x\r\ny"))
    assert "xy" not in broker.exchanges
    assert peer.ask(1, named(Queue.Delete, queue="a\r\nb")).name == "Queue.DeleteOk"
    assert broker.queues == {}


@pytest.mark.parametrize("method", [Queue.Purge, commands.Basic.Get, commands.Basic.Consume])
def test_line_ends_are_not_taken_out_elsewhere(broker, peer, method):
    broker.add_queue("ab")
    assert peer.ask(1, named(method, queue="a\r\nb")).reply_code == 404


def test_a_queue_that_has_line_ends_in_its_name_can_be_deleted(broker, peer):
    broker.add_queue("a\r\nb")
    peer.ask(1, named(Queue.Delete, queue="a\r\nb"))
    assert broker.queues == {}
