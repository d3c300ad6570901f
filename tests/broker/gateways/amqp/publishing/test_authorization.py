"""Every method takes the permissions that it takes in RabbitMQ, and is refused without one."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from headrace_broker.catalog.event import PermissionChanged, TopicPermissionChanged
from headrace_broker.model.definition import Exchange as ExchangeDefinition
from headrace_broker.model.definition import Permission, TopicPermission

Basic = commands.Basic
Exchange = commands.Exchange
Queue = commands.Queue
Tx = commands.Tx

DEAD: Any = {"x-dead-letter-exchange": "x"}
DEFAULT: Any = {"x-dead-letter-exchange": ""}
ALTERNATE: Any = {"alternate-exchange": "x"}


@pytest.fixture
def grant(broker: Any) -> Any:
    """Give the connected user what "operation name" pairs say, and nothing else."""

    def give(*rights: str) -> None:
        patterns = dict.fromkeys(("configure", "write", "read"), "")
        for right in rights:
            operation, name = right.split(" ")
            patterns[operation] = f"^({'|'.join([*_names(patterns[operation]), name])})$"
        permission = Permission("guest", "/", **patterns)
        broker.rules.guarded = True
        broker.rules.put_permission(permission)
        broker.permissions.on_events([PermissionChanged("guest", "/", permission)])

    return give


def _names(pattern: str) -> list[str]:
    return pattern[2:-2].split("|") if pattern else []


@pytest.fixture
def world(broker: Any, peer: Any) -> Any:
    """A queue and two exchanges, and a channel that asks for things there."""
    broker.add_queue("q")
    broker.add_exchange(ExchangeDefinition("/", "x", "direct"))
    broker.add_exchange(ExchangeDefinition("/", "y", "direct"))
    return peer


METHODS = [
    (Queue.Declare(queue="q", durable=True), ["configure q"]),
    (Queue.Declare(queue="new"), ["configure new"]),
    (Queue.Declare(queue="new", arguments=DEAD), ["configure new", "read new", "write x"]),
    (
        Queue.Declare(queue="new", arguments=DEFAULT),
        ["configure new", "read new", "write amq.default"],
    ),
    (Queue.Delete(queue="q"), ["configure q"]),
    (Queue.Purge(queue="q"), ["read q"]),
    (Queue.Bind(queue="q", exchange="x", routing_key="k"), ["write q", "read x"]),
    (Queue.Unbind(queue="q", exchange="x", routing_key="k"), ["write q", "read x"]),
    (Exchange.Declare(exchange="x"), ["configure x"]),
    (Exchange.Declare(exchange="new"), ["configure new"]),
    (
        Exchange.Declare(exchange="new", arguments=ALTERNATE),
        ["configure new", "read new", "write x"],
    ),
    (Exchange.Delete(exchange="x"), ["configure x"]),
    (Exchange.Bind(destination="x", source="y"), ["write x", "read y"]),
    (Exchange.Unbind(destination="x", source="y"), ["write x", "read y"]),
    (Basic.Consume(queue="q"), ["read q"]),
    (Basic.Get(queue="q"), ["read q"]),
]


@pytest.mark.parametrize(("method", "rights"), METHODS)
def test_method_is_done_with_its_permissions(
    world: Any, grant: Any, method: Any, rights: list[str]
) -> None:
    grant(*rights)
    assert world.ask(1, method).name != "Channel.Close"


@pytest.mark.parametrize(
    ("method", "rights", "missing"),
    [(method, rights, missing) for method, rights in METHODS for missing in rights],
)
def test_method_is_refused_without_any_one_of_them(
    world: Any, grant: Any, broker: Any, method: Any, rights: list[str], missing: str
) -> None:
    grant(*(right for right in rights if right != missing))
    before = list(broker.log)
    close = world.ask(1, method)
    operation, name = missing.split(" ")
    assert (close.name, close.reply_code) == ("Channel.Close", 403)
    assert close.reply_text.startswith(f"ACCESS_REFUSED - {operation} access to ")
    assert close.reply_text.endswith(f" '{name}' in vhost '/' refused for user 'guest'")
    assert broker.log == before


def test_queue_that_is_there_is_declared_again_without_its_exchange_of_dead_letters(
    world: Any, grant: Any, broker: Any
) -> None:
    broker.add_queue("dead", arguments=DEAD)
    grant("configure dead")
    declare = Queue.Declare(queue="dead", durable=True, arguments=DEAD)
    assert world.ask(1, declare).name == "Queue.DeclareOk"


@pytest.mark.parametrize(
    ("method", "name"),
    [
        (Queue.Declare(queue="q", passive=True), "q"),
        (Exchange.Declare(exchange="x", passive=True), "x"),
    ],
)
@pytest.mark.parametrize("operation", ["configure", "write", "read"])
def test_passive_declare_takes_any_permission(
    world: Any, grant: Any, method: Any, name: str, operation: str
) -> None:
    grant(f"{operation} {name}")
    assert world.ask(1, method).name.endswith("DeclareOk")
    grant(f"{operation} other")
    assert world.ask(1, method).reply_code == 403


def test_server_named_queue_takes_a_permission_for_its_name(world: Any, grant: Any) -> None:
    grant("configure amq\\.gen-.*")
    assert world.ask(1, Queue.Declare(queue="")).name == "Queue.DeclareOk"
    grant("configure mine")
    assert world.ask(1, Queue.Declare(queue="")).reply_code == 403


def test_publish_takes_a_permission_for_its_exchange(
    kit: Any, world: Any, grant: Any, broker: Any
) -> None:
    grant("write amq.default")
    world.feed(kit.publish(1, "", "q", b"1"))
    assert world.turn() == []
    [(_, close)] = world_publish(kit, world, "x")
    assert (close.reply_code, close.reply_text) == (
        403,
        "ACCESS_REFUSED - write access to exchange 'x' in vhost '/' refused for user 'guest'",
    )


def test_permission_that_is_taken_away_stops_a_publisher(kit: Any, world: Any, grant: Any) -> None:
    grant("write x")
    assert world_publish(kit, world, "x") == []
    grant("write y")
    [(_, close)] = world_publish(kit, world, "x")
    assert close.reply_code == 403


def world_publish(kit: Any, peer: Any, exchange: str) -> Any:
    peer.feed(kit.publish(1, exchange, "k", b"x"))
    return peer.turn()


@pytest.fixture
def narrow(broker: Any) -> Any:
    """Give the connected user a topic permission at `t`, or take it."""
    broker.add_queue("q")
    exchange = ExchangeDefinition("/", "t", "topic")
    broker.add_exchange(exchange)
    broker.rules.put_exchange(exchange)

    def give(write: str | None, read: str = "") -> None:
        if write is None:
            broker.rules.drop_topic_permission(broker.rules.topic_permission("guest", "/", "t"))
        else:
            broker.rules.put_topic_permission(TopicPermission("guest", "/", "t", write, read))
        broker.permissions.on_events([TopicPermissionChanged("guest", "/", "t", None)])

    return give


def publish_topic(kit: Any, peer: Any, key: str, headers: Any = None) -> Any:
    properties = Basic.Properties(headers=headers)
    peer.feed(kit.publish(1, "t", key, b"x", properties=properties))
    return peer.turn()


def test_topic_permission_says_with_which_routing_keys_one_publishes(
    kit: Any, peer: Any, narrow: Any
) -> None:
    peer.ask(1, Queue.Bind(queue="q", exchange="t", routing_key="#"))
    narrow("^a")
    assert publish_topic(kit, peer, "a.b") == []
    [(_, close)] = publish_topic(kit, peer, "b")
    assert (close.reply_code, close.reply_text) == (
        403,
        "ACCESS_REFUSED - write access to topic 'b' in exchange 't' in vhost '/' "
        "refused for user 'guest'",
    )


def test_topic_permission_counts_from_when_it_is_given_until_it_is_taken(
    kit: Any, peer: Any, narrow: Any
) -> None:
    assert publish_topic(kit, peer, "b") == []
    narrow("^a")
    narrow(None)
    assert publish_topic(kit, peer, "b") == []
    narrow("^a")
    [(_, close)] = publish_topic(kit, peer, "b")
    assert close.reply_code == 403


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_topic_permission_counts_for_copies(
    kit: Any, peer: Any, broker: Any, narrow: Any, header: str
) -> None:
    peer.ask(1, Queue.Bind(queue="q", exchange="t", routing_key="#"))
    narrow("^a")
    assert publish_topic(kit, peer, "a", headers={header: ["a.c"]}) == []
    [(_, close)] = publish_topic(kit, peer, "a", headers={header: ["a.c", "b"]})
    assert (close.reply_code, "topic 'b'" in close.reply_text) == (403, True)
    assert len(broker.queues["q"].ready) == 1


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_topic_permission_counts_for_copies_when_a_transaction_is_committed(
    kit: Any, peer: Any, broker: Any, narrow: Any, header: str
) -> None:
    peer.ask(1, Queue.Bind(queue="q", exchange="t", routing_key="#"))
    peer.ask(1, Tx.Select())
    assert publish_topic(kit, peer, "a", headers={header: ["b"]}) == []
    narrow("^a")
    close = peer.ask(1, Tx.Commit())
    assert (close.reply_code, "topic 'b'" in close.reply_text) == (403, True)
    assert len(broker.queues["q"].ready) == 0


@pytest.mark.parametrize("kind", [Queue.Bind, Queue.Unbind])
def test_topic_permission_says_with_which_routing_keys_one_binds(
    peer: Any, narrow: Any, kind: Any
) -> None:
    narrow("", "^a")
    assert peer.ask(1, kind(queue="q", exchange="t", routing_key="a.*")).name.endswith("Ok")
    close = peer.ask(1, kind(queue="q", exchange="t", routing_key="#"))
    assert (close.reply_code, "read access to topic '#'" in close.reply_text) == (403, True)


def test_topic_permission_says_with_which_routing_keys_one_binds_exchanges(
    peer: Any, broker: Any, narrow: Any
) -> None:
    broker.add_exchange(ExchangeDefinition("/", "x", "direct"))
    narrow("", "^a")
    bind = Exchange.Bind(destination="x", source="t", routing_key="a.*")
    assert peer.ask(1, bind).name == "Exchange.BindOk"
    close = peer.ask(1, Exchange.Bind(destination="x", source="t", routing_key="b"))
    assert (close.reply_code, "read access to topic 'b'" in close.reply_text) == (403, True)


@pytest.mark.parametrize(
    "method",
    [
        Queue.Declare(
            queue="new", arguments={"x-dead-letter-exchange": "t", "x-dead-letter-routing-key": "b"}
        ),
        Queue.Declare(queue="new", arguments={"x-dead-letter-exchange": "t"}),
        Exchange.Declare(exchange="new", arguments={"alternate-exchange": "t"}),
        Exchange.Bind(destination="t", source="amq.fanout", routing_key="a"),
    ],
    ids=["a dead letter's key", "dead letters", "alternate exchange", "chain"],
)
def test_topic_permission_is_not_got_round_by_having_messages_sent_on(
    peer: Any, narrow: Any, method: Any
) -> None:
    narrow("^a", ".*")
    close = peer.ask(1, method)
    assert (close.reply_code, "sending messages on to exchange 't'" in close.reply_text) == (
        403,
        True,
    )


@pytest.mark.parametrize(
    ("tags", "vhost", "text"),
    [
        ((), "/", "NOT_ALLOWED - access to vhost '/' refused for user 'guest'"),
        ((), "none", "NOT_ALLOWED - access to vhost 'none' refused for user 'guest'"),
        (("monitoring",), "none", "NOT_ALLOWED - vhost 'none' not found"),
    ],
)
def test_vhost_without_a_permission_is_closed(
    kit: Any, broker: Any, new_peer: Any, tags: tuple[str, ...], vhost: str, text: str, caplog: Any
) -> None:
    caplog.set_level("INFO", "headrace.audit")
    broker.rules.guarded, broker.tags = True, tags
    peer = new_peer()
    peer.feed(kit.HEADER)
    peer.turn()
    peer.ask(0, peer.start_ok())
    peer.call(0, commands.Connection.TuneOk(2047, 131072, 60))
    close = peer.ask(0, commands.Connection.Open(vhost))
    assert (close.name, close.reply_code, close.reply_text) == ("Connection.Close", 530, text)
    [line] = [record.getMessage() for record in caplog.records if record.name == "headrace.audit"]
    assert f"protocol=amqp request=n1/1/1 action=open target={vhost} outcome=" in line
    assert line.startswith("user=guest peer=")
