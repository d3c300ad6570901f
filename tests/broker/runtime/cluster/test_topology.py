"""Declaring and deleting: requests to the catalog, and its refusals as AMQP errors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.result import (
    Exists,
    Inequivalent,
    InUse,
    Locked,
    NotFound,
    Ok,
    Refused,
)
from headrace_broker.catalog.store import CatalogStore
from headrace_broker.model.definition import (
    QUEUE_CLASSIC,
    QUEUE_QUORUM,
    Binding,
    Exchange,
    Policy,
    Queue,
    Vhost,
)
from headrace_broker.model.limits import REPLICAS_DEFAULT, TTL_MS_MAX
from headrace_broker.model.reply_code import (
    INTERNAL_ERROR,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
    AmqpError,
)
from headrace_broker.model.status import QueueCounts
from headrace_broker.runtime.cluster.catalog_service import CatalogUnavailableError
from headrace_broker.runtime.cluster.topology import Topology
from headrace_broker.runtime.rpc.leader import LeaderUnavailableError, QueueGoneError

QUEUE = Queue("/", "work", QUEUE_QUORUM, 7, (1, 2, 3))
BINDING = Binding("/", "logs", "queue", "work", "k")


class Parts:
    """A catalog that answers as told, leaders and counts."""

    def __init__(self):
        self.answer = Ok(QUEUE)
        self.submitted = []
        self.catalog = CatalogStore()
        self.leads = True
        self.counts: Any = QueueCounts(3, 2, 1)
        parts: Any = self
        self.topology = Topology(1, parts, parts, parts)

    async def submit(self, command):
        self.submitted.append(command)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def renewed_members(self):
        return (77 << 10 | 3,)

    async def wait_leader(self, queue, seconds):
        assert queue is QUEUE
        return self.leads

    async def ask(self, queue):
        if isinstance(self.counts, list):
            return self.counts.pop(0)
        if isinstance(self.counts, Exception):
            raise self.counts
        return self.counts

    def run(self, method, *arguments):
        return asyncio.run(getattr(self.topology, method)(*arguments))

    def fails(self, code, method, *arguments):
        with pytest.raises(AmqpError) as caught:
            self.run(method, *arguments)
        assert caught.value.code == code
        return caught.value.text


@pytest.fixture
def parts():
    """A topology and its collaborators."""
    return Parts()


DECLARE: tuple[Any, ...] = ("declare_queue", "/", "work", True, False, False, {}, "me")


def test_declare_asks_for_this_node_and_waits_for_the_leader(parts):
    assert parts.run(*DECLARE) is QUEUE
    (command,) = parts.submitted
    assert (command.preferred_node, command.replicas, command.owner) == (1, REPLICAS_DEFAULT, "")
    assert command.member_ids == (77 << 10 | 3,)


@pytest.mark.parametrize(
    ("arguments", "flags", "preferred"),
    [
        ({"x-queue-leader-locator": "client-local"}, (True, False, False), 1),
        ({"x-queue-leader-locator": "balanced"}, (True, False, False), 0),
        ({"x-queue-leader-locator": "balanced"}, (False, False, False), 1),
        ({"x-queue-leader-locator": "balanced"}, (True, True, False), 1),
        (
            {"x-queue-type": "classic", "x-queue-master-locator": "min-masters"},
            (True, False, False),
            0,
        ),
    ],
)
def test_first_leader_is_where_it_was_asked_for(parts, arguments, flags, preferred):
    parts.run("declare_queue", "/", "work", *flags, arguments, "me")
    assert parts.submitted[0].preferred_node == preferred


def test_type_left_out_is_that_of_the_queue_that_is_there(parts):
    parts.catalog.put_vhost(Vhost("/", default_queue_type="quorum"))
    parts.catalog.put_queue(Queue("/", "work", QUEUE_CLASSIC, 7, (1,)))
    parts.run(*DECLARE)
    parts.run("declare_queue", "/", "new", True, False, False, {}, "me")
    assert [command.kind for command in parts.submitted] == [QUEUE_CLASSIC, QUEUE_QUORUM]


def test_first_leader_is_where_a_policy_wants_it(parts):
    definition = {"queue-leader-locator": "balanced"}
    parts.catalog.put_policy(Policy("/", "spread", "^w", definition, apply_to="quorum_queues"))
    parts.run(*DECLARE)
    assert parts.submitted[0].preferred_node == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"x-expires": 0},
            "invalid arg 'x-expires' for queue 'work' in vhost '/': must be an integer from 1 to"
            f" {TTL_MS_MAX}, not 0",
        ),
        (
            {"x-queue-type": "classic", "x-delivery-limit": 5},
            "invalid arg 'x-delivery-limit' for queue 'work' in vhost '/' of queue type classic",
        ),
    ],
)
def test_arguments_that_cannot_be_are_refused_before_anything_is_declared(parts, arguments, text):
    declare = ("declare_queue", "/", "work", True, False, False, arguments, "me")
    assert parts.fails(PRECONDITION_FAILED, *declare) == text
    assert parts.submitted == []


def test_vhost_says_what_kind_a_queue_is_by_default(parts):
    parts.catalog.put_vhost(Vhost("/", default_queue_type="classic"))
    parts.run(*DECLARE)
    assert (parts.submitted[0].kind, parts.submitted[0].replicas) == (QUEUE_CLASSIC, 1)


def test_exclusive_queue_belongs_to_its_connection(parts):
    parts.run("declare_queue", "/", "work", False, True, False, {}, "me")
    assert parts.submitted[0].owner == "me"


def test_declare_of_what_is_there_gives_it(parts):
    parts.answer = Exists(QUEUE)
    assert parts.run(*DECLARE) is QUEUE


def test_declare_without_a_leader_fails(parts):
    parts.leads = False
    assert "has no leader" in parts.fails(INTERNAL_ERROR, *DECLARE)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (NotFound("vhost '/'"), NOT_FOUND),
        (Locked("queue 'work'"), RESOURCE_LOCKED),
        (Inequivalent("queue 'work'", "durable", "'true'", "'false'"), PRECONDITION_FAILED),
        (InUse("queue 'work'"), PRECONDITION_FAILED),
        (Refused("no"), PRECONDITION_FAILED),
        (object(), INTERNAL_ERROR),
        (CatalogUnavailableError("no quorum"), INTERNAL_ERROR),
    ],
)
def test_refusals_become_amqp_errors(parts, answer, code):
    parts.answer = answer
    parts.fails(code, *DECLARE)
    parts.fails(code, "bind", BINDING)
    parts.fails(code, "declare_exchange", Exchange("/", "logs", "fanout"))


def test_delete_names_the_incarnation_and_counts_ready(parts):
    assert parts.run("delete_queue", QUEUE, False, False) == 3
    assert parts.submitted == [commands.DeleteQueue("/", "work", 7)]


def test_delete_of_an_empty_queue_passes_over_what_consumers_hold(parts):
    parts.counts = QueueCounts(0, 1, 0, delayed=0, dead=0)
    assert parts.run("delete_queue", QUEUE, False, True) == 0


@pytest.mark.parametrize(
    ("counts", "flags", "text"),
    [
        (QueueCounts(0, 0, 1), (True, False), "in use"),
        (QueueCounts(0, 1, 0, leased=1), (True, False), "in use"),
        (QueueCounts(1, 0, 0), (False, True), "not empty"),
        (QueueCounts(1, 1, 0), (False, True), "not empty"),
        (QueueCounts(0, 0, 0, delayed=1, dead=0), (False, True), "not empty"),
        (QueueCounts(0, 0, 0, delayed=0, dead=1), (False, True), "not empty"),
    ],
)
def test_conditions_of_delete(parts, counts, flags, text):
    parts.counts = counts
    assert text in parts.fails(PRECONDITION_FAILED, "delete_queue", QUEUE, *flags)
    assert parts.submitted == []
    if_unused, if_empty = flags
    parts.counts = QueueCounts(0, if_unused, if_empty, delayed=0, dead=0)  # the other's is none
    assert parts.run("delete_queue", QUEUE, *flags) == 0


def test_queue_without_a_leader_is_deleted_unless_its_contents_matter(parts):
    parts.counts = LeaderUnavailableError("no leader")
    parts.fails(INTERNAL_ERROR, "delete_queue", QUEUE, True, False)
    parts.fails(INTERNAL_ERROR, "delete_queue", QUEUE, False, True)
    assert parts.submitted == []
    assert parts.run("delete_queue", QUEUE, False, False) == 0


def test_queue_that_somebody_else_deletes_first_is_deleted(parts):
    parts.counts = QueueGoneError("no queue 'work'")
    assert parts.run("delete_queue", QUEUE, True, True) == 0


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("delete_queue", (QUEUE, False, False)),
        ("delete_exchange", ("/", "logs", False)),
        ("unbind", (BINDING,)),
    ],
)
def test_deleting_what_is_gone_is_no_error_but_a_refusal_is(parts, method, arguments):
    parts.answer = NotFound("it")
    parts.run(method, *arguments)
    parts.answer = InUse("it")
    parts.fails(PRECONDITION_FAILED, method, *arguments)


def test_dropping(parts):
    parts.run("drop_owner", "me")
    parts.run("drop_unused", QUEUE)
    parts.run("drop_node_memory")
    assert parts.submitted == [
        commands.DropTransient(owner="me"),
        commands.DeleteQueue("/", "work", 7),
        commands.DropTransient(node=1),
    ]
