"""Messages fetched, removed and moved one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace_broker.catalog.permission import Permissions
from headrace_broker.catalog.store import CatalogStore
from headrace_broker.core.queue.command.leader_command import encode_configure
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.messages.settings import OVERFLOW_REJECT_PUBLISH, QueueSettings
from headrace_broker.flow.blocked import NOT_BLOCKED, Blocked, BlockedState
from headrace_broker.model.flow import LIMIT_DISK, LIMIT_MEMORY, REPUBLISH, Cause
from headrace_broker.model.limits import FETCHED_BYTES_MAX, MOVED_BYTES_MAX
from headrace_broker.model.reply_code import (
    ACCESS_REFUSED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    AmqpError,
)
from headrace_broker.runtime.contract.port import ACCEPT, RELEASE
from headrace_broker.runtime.inspect import message_service as module
from headrace_broker.runtime.inspect.browsing import Page, page_of
from headrace_broker.runtime.inspect.message_service import MessageService
from headrace_broker.runtime.replica.reading.entries import Entries
from headrace_broker.runtime.rpc.leader import LeaderUnavailableError, QueueGoneError

WORK = b"\x00\x04work"


def waiting(host: Any, after: int, limit: int, body_bytes: int) -> Page:
    """Return a page of a replica that has all in memory."""
    return page_of(host, Entries(host.log), after, limit, body_bytes)


class Parts:
    """A broker with one queue, its router, and who browses."""

    def __init__(self, world):
        self.world = world
        self.known = True
        self.internal = False
        self.needs_message = False
        self.targets = [world.queue]
        self.exists = True
        self.caught_up = 0
        self.asked = []
        self.failure: Exception | None = None
        fake: Any = self
        self.ledger = world.ledger
        self.republish_account = self.ledger.open(Cause("n1/republish", REPUBLISH, "", "n1"))
        self.node_name = "n1"
        self.boot = 3
        self.blocked = BlockedState()
        self.rules = CatalogStore()
        self.permissions = Permissions(self.rules)
        self.causes = []
        self.router = self
        self.service = MessageService(fake, fake)
        self.configure(QueueSettings())

    def configure(self, settings):
        """Give the queue settings, as its leader does."""
        self.world.hosts[1].propose(encode_configure(MACHINE_VERSION, settings))
        self.world.settle_down()

    def open_queue(self, queue, listener, account):
        assert self.ledger.accounts[account.cause.account] is account
        self.causes.append(account.cause)
        return self.world.open(2, listener)

    def queue(self, vhost, name):
        return self.world.queue if self.exists else None

    async def catch_up(self):
        self.caught_up += 1

    def route(self, vhost, raw_route):
        queues = () if self.needs_message else tuple(self.targets)
        return SimpleNamespace(
            exchange="e",
            known=self.known,
            internal=self.internal,
            needs_message=self.needs_message,
            queues=queues,
        )

    def route_stored(self, vhost, raw_route, properties):
        self.asked.append(properties)
        return SimpleNamespace(queues=tuple(self.targets))

    async def ask(self, queue, after, limit, body_bytes):
        if self.failure is not None:
            raise self.failure
        return waiting(self.world.hosts[1], after, limit, body_bytes)


@pytest.fixture
def parts(world):
    return Parts(world)


@pytest.fixture
def fill(world, listener, publishes):
    session = world.open(1, listener)

    def publish(*bodies):
        session.publish(publishes(*bodies), None)
        session.flush()
        world.settle_down()

    return publish


def left(world):
    """Ids and bodies of the messages that wait."""
    page = waiting(world.hosts[1], 0, 100, 5)
    return [(message.id, message.body) for message in page.messages]


def counts(world):
    machine = world.hosts[1].machine
    return machine.ready_count, machine.unsettled_count


def test_fetched_messages_are_settled(world, parts, fill):
    fill(b"a", b"b", b"c")
    fetched = world.run(parts.service.fetch(world.queue, 2, ACCEPT))
    assert [(each.body, each.ready_left) for each in fetched] == [(b"a", 2), (b"b", 1)]
    assert [(each.route, each.properties) for each in fetched] == [(WORK, b"\x00\x00")] * 2
    world.settle_down()
    assert left(world) == [(3, b"c")]
    assert counts(world) == (1, 0)


def test_fetched_messages_may_go_back(world, parts, fill):
    fill(b"a")
    first = world.run(parts.service.fetch(world.queue, 1, RELEASE))
    again = world.run(parts.service.fetch(world.queue, 9, RELEASE))
    assert [each.redelivered for each in first] == [False]
    assert [each.redelivered for each in again] == [True]
    world.settle_down()
    assert left(world) == [(1, b"a")]


def test_message_that_is_too_large_to_be_held_whole_is_not_fetched(world, parts, fill, monkeypatch):
    monkeypatch.setattr(module, "MESSAGE_BYTES_WHOLE", 3)
    fill(b"a", b"long")
    [first] = world.run(parts.service.fetch(world.queue, 2, ACCEPT))
    assert first.body == b"a"
    with pytest.raises(AmqpError, match="has a body of 4 bytes, over HTTP at most 3") as caught:
        world.run(parts.service.fetch(world.queue, 2, ACCEPT))
    assert caught.value.code == PRECONDITION_FAILED
    world.settle_down()
    assert left(world) == [(2, b"long")]


def test_fetching_ends_where_nothing_waits_and_where_enough_came(world, parts, fill):
    assert world.run(parts.service.fetch(world.queue, 5, ACCEPT)) == []
    fill(b"a")
    assert len(world.run(parts.service.fetch(world.queue, 5, ACCEPT))) == 1
    for _ in range(4):
        fill(bytes(FETCHED_BYTES_MAX // 2))
    assert len(world.run(parts.service.fetch(world.queue, 5, ACCEPT))) == 2
    world.settle_down()
    assert counts(world) == (2, 0)


def test_messages_are_removed_by_their_ids(world, parts, fill):
    fill(b"a", b"b", b"c")
    assert world.run(parts.service.remove(world.queue, [2, 9])) == 1
    world.settle_down()
    assert left(world) == [(1, b"a"), (3, b"c")]
    assert world.hosts[1].machine.digest() == world.hosts[2].machine.digest()


def test_messages_move_in_the_order_asked_for(world, parts, fill):
    fill(b"a", b"b", b"c")
    moved = world.run(parts.service.move(world.queue, [3, 1, 8, 1], WORK))
    assert (moved.moved, moved.missing) == ([3, 1], [8, 1])
    world.settle_down()
    assert left(world) == [(2, b"b"), (4, b"c"), (5, b"a")]
    assert counts(world) == (3, 0)


def test_large_messages_move_in_turns(world, parts, fill):
    for _ in range(3):
        fill(bytes(MOVED_BYTES_MAX))
    moved = world.run(parts.service.move(world.queue, [1, 2, 3], WORK))
    assert moved.moved == [1, 2, 3]
    world.settle_down()
    waiting = world.hosts[1].machine.available_from(0, 9)
    assert [message.message_id for message in waiting] == [4, 5, 6]


def test_what_no_queue_takes_stays(world, parts, fill):
    fill(b"a", b"b")
    parts.needs_message = True
    parts.targets = []
    moved = world.run(parts.service.move(world.queue, [1, 2], WORK))
    assert (moved.moved, moved.unrouted) == ([], [1, 2])
    assert parts.asked == [b"\x00\x00"] * 2
    world.settle_down()
    assert left(world) == [(1, b"a"), (2, b"b")]


def test_what_a_queue_refuses_stays(world, parts, fill):
    fill(b"a", b"b", b"c")
    settings = QueueSettings()
    settings.max_length = 1
    settings.overflow = OVERFLOW_REJECT_PUBLISH
    parts.configure(settings)
    moved = world.run(parts.service.move(world.queue, [1], WORK))
    assert (moved.moved, moved.refused) == ([], [1])
    world.settle_down()
    assert [each[0] for each in left(world)] == [1, 2, 3]


def test_a_queue_that_is_deleted_takes_nothing(world, parts, fill):
    fill(b"a")
    parts.exists = False
    moved = world.run(parts.service.move(world.queue, [1], WORK))
    assert moved.refused == [1]
    world.settle_down()
    assert left(world)[0] == (1, b"a")


@pytest.mark.parametrize(
    ("known", "internal", "code"), [(False, False, NOT_FOUND), (True, True, ACCESS_REFUSED)]
)
def test_there_must_be_an_exchange_that_takes_publishes(world, parts, fill, known, internal, code):
    fill(b"a")
    parts.known, parts.internal = known, internal
    with pytest.raises(AmqpError) as caught:
        world.run(parts.service.move(world.queue, [1], WORK))
    assert caught.value.code == code
    assert parts.caught_up == (not known)
    assert counts(world) == (1, 0)


def test_browsing_passes_the_leaders_page_on(world, parts, fill):
    fill(b"a", b"b")
    page = world.run(parts.service.browse(world.queue, 1, 5, 9))
    assert isinstance(page, Page)
    assert [message.body for message in page.messages] == [b"b"]


@pytest.mark.parametrize(
    "failure", [LeaderUnavailableError("no leader"), QueueGoneError("no queue")]
)
def test_browsing_without_a_leader_fails_as_amqp_does(world, parts, failure):
    parts.failure = failure
    with pytest.raises(AmqpError, match=str(failure)):
        world.run(parts.service.browse(world.queue, 0, 5, 9))


def test_move_is_charged_to_who_asked_for_it_and_leaves_no_account(world, parts, fill):
    fill(b"a", b"b")
    accounts = dict(world.ledger.accounts)
    world.run(parts.service.move(world.queue, [1, 2], WORK, "boss"))
    world.run(parts.service.move(world.queue, [3], WORK, "boss"))
    cause = parts.causes[-1]
    assert (cause.account, cause.kind) == ("n1/republish/3.2", "republish")
    assert (cause.name, cause.user, cause.vhost) == ("move out of queue 'work'", "boss", "/")
    new = set(world.ledger.accounts) - set(accounts)
    assert not [name for name in new if "republish" in name]


class Coming:
    """A state that has the next value each time it is asked, the last one for ever."""

    def __init__(self, *values):
        self._values = list(values)

    @property
    def now(self):
        return self._values.pop(0) if len(self._values) > 1 else self._values[0]


def test_nothing_is_moved_during_an_alarm(world, parts, fill):
    fill(b"a")
    parts.blocked.change(Blocked("low on memory", LIMIT_MEMORY))
    with pytest.raises(AmqpError, match="publishers are blocked: low on memory"):
        world.run(parts.service.move(world.queue, [1], WORK))
    assert parts.causes == []


def test_move_stops_between_steps_when_an_alarm_comes(world, parts, fill, monkeypatch):
    monkeypatch.setattr(module, "MOVED_BYTES_MAX", 1)
    fill(b"a", b"b", b"c")
    parts.blocked = Coming(NOT_BLOCKED, NOT_BLOCKED, Blocked("low on disk", LIMIT_DISK))
    moved = world.run(parts.service.move(world.queue, [1, 2, 3], WORK))
    assert (moved.moved, moved.refused) == ([1], [2, 3])
