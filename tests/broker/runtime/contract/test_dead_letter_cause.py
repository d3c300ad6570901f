"""Account that is charged for dead letters: in one queue, with sessions of two nodes."""

from __future__ import annotations

import pytest

from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.messages.settings import (
    DEAD_LETTER_AT_LEAST_ONCE,
    DEAD_LETTER_AT_MOST_ONCE,
    OVERFLOW_REJECT_PUBLISH_DLX,
    QueueSettings,
)
from headrace_broker.flow.cause_runs import CauseRuns
from headrace_broker.flow.charges import NO_CAUSE
from headrace_broker.model.flow import DEAD_LETTERS, Cause
from headrace_broker.model.limits import DEAD_LETTER_COMMANDS_MAX, LARGE_BYTES
from headrace_broker.model.session import session_id
from headrace_broker.runtime.contract.dead_letter_cause import EXPIRY_CAUSE
from headrace_broker.runtime.contract.port import MODIFY_FAILED, REJECT, Attachment
from headrace_broker.runtime.dead_letter.session import DeadLetterSession
from headrace_broker.runtime.session.session import QueueSession

FIRST, SECOND = session_id(3, 9, 1), session_id(3, 9, 2)  # causes on some other node


def configure(world, **changes):
    settings = QueueSettings()
    settings.dead_letter = DEAD_LETTER_AT_MOST_ONCE
    for name, value in changes.items():
        setattr(settings, name, value)
    world.watcher.version = MACHINE_VERSION
    world.watcher.settings = settings
    world.lead(1)
    world.settle_down()


def publish(world, session, bodies):
    session.publish(bodies, None)
    session.flush()
    world.settle_down()


def causes(world):
    return [int(dead_letter.cause) for dead_letter in world.watcher.all_dead_letters]


def open_dead_letters(world, node, listener):
    """A session of dead letters; what it sends is to be noted in the second value first."""
    runs = CauseRuns()
    number = session_id(node, 1, 500, deaths=True)
    reach = DeadLetterSession(world.boards[node], runs)
    account = world.ledger.open(Cause(f"dead letters of {node}", DEAD_LETTERS, "", ""))
    session = QueueSession(
        number,
        world.queue,
        listener,
        reach,
        world.owner,
        world.traffic,
        account,
        world.gates.enter(world.queue.group),
    )
    world.boards[node].sessions[number] = session.end
    return session, runs


def send(world, session, runs, publishes, *caused):
    for cause in caused:
        runs.add(cause)
    publish(world, session, publishes(*[b"%d" % n for n in range(len(caused))]))


@pytest.mark.parametrize("node", [1, 2, 3])
def test_rejected_message_is_charged_to_its_consumer(world, node, listener, publishes):
    configure(world)
    publish(world, world.open(1, listener), publishes(b"a", b"b"))
    consumer = world.open(node, listener)
    world.run(consumer.attach(1, Attachment("tag", 10)))
    consumer.settle(1, REJECT, 1, 2)
    consumer.flush()
    world.settle_down()
    assert causes(world) == [consumer.session] * 2


def test_message_that_failed_too_often_is_charged_to_its_last_consumer(world, listener, publishes):
    configure(world, delivery_limit=0)
    publish(world, world.open(1, listener), publishes(b"a"))
    consumer = world.open(2, listener)
    world.run(consumer.attach(1, Attachment("tag", 10)))
    consumer.settle(1, MODIFY_FAILED, 1, 1)
    consumer.flush()
    world.settle_down()
    assert causes(world) == [consumer.session]


def test_message_that_had_to_go_is_charged_to_who_came(world, listener, publishes):
    configure(world, max_length=1)
    publish(world, world.open(1, listener), publishes(b"a"))
    second = world.open(2, listener)
    publish(world, second, publishes(b"b"))
    assert causes(world) == [second.session]


def test_refused_message_is_charged_to_its_publisher(world, listener, publishes):
    configure(world, max_length=1, overflow=OVERFLOW_REJECT_PUBLISH_DLX)
    publisher = world.open(2, listener)
    publish(world, publisher, publishes(b"a", b"b"))
    assert causes(world) == [publisher.session]


def test_expired_message_is_charged_to_time(world, listener, publishes):
    configure(world, message_ttl_ms=1000)
    session = world.open(1, listener)
    publish(world, session, publishes(b"a"))
    world.clock.ms += 5000
    publish(world, session, publishes(b"b"))
    assert causes(world) == [EXPIRY_CAUSE]


def test_kept_messages_are_told_with_their_cause(world, listener, publishes):
    configure(world, dead_letter=DEAD_LETTER_AT_LEAST_ONCE, max_length=1)
    publish(world, world.open(1, listener), publishes(b"a"))
    second = world.open(2, listener)
    publish(world, second, publishes(b"b"))
    assert world.watcher.kept_causes == {1: second.session}


@pytest.mark.parametrize("node", [1, 2])
def test_dead_letters_that_push_others_out_are_charged_to_the_first_cause(
    world, node, listener, publishes
):
    configure(world, max_length=2)
    publish(world, world.open(1, listener), publishes(b"a", b"b"))
    session, runs = open_dead_letters(world, node, listener)
    send(world, session, runs, publishes, FIRST, SECOND)
    assert causes(world) == [FIRST, SECOND]
    send(world, session, runs, publishes, SECOND, FIRST)
    assert causes(world) == [FIRST, SECOND, SECOND, FIRST]
    assert len(world.hosts[1].lead.causes._told) == 0


def test_last_dead_letters_push_out_when_there_was_some_room(world, listener, publishes):
    configure(world, max_length=2)
    session, runs = open_dead_letters(world, 2, listener)
    send(world, session, runs, publishes, FIRST, FIRST, SECOND)
    assert causes(world) == [SECOND]


def test_new_leader_does_not_know_causes_of_what_it_was_not_told(world, listener, publishes):
    configure(world, max_length=1)
    session, runs = open_dead_letters(world, 2, listener)
    runs.add(FIRST)
    session.publish(publishes(b"a"), None)
    session.flush()
    world.carry()
    world.lead(1)  # again, in another term; the command is in its log
    runs.add(FIRST)
    session.publish(publishes(b"b"), None)
    session.flush()
    world.carry()
    world.hosts[1].lead.causes._told.clear()
    world.settle_down()
    assert causes(world) == [NO_CAUSE]


def test_causes_of_commands_are_remembered_within_a_bound(world, listener, publishes):
    configure(world, max_length=1)
    session, runs = open_dead_letters(world, 1, listener)
    for cause in (FIRST, SECOND):
        runs.add(cause)
    session.publish(publishes(b"a"), None)
    session.flush()
    session.publish(publishes(b"b"), None)
    session.flush()
    known = world.hosts[1].lead.causes
    for number in range(DEAD_LETTER_COMMANDS_MAX - 1):  # the causes of the first are forgotten
        known.note(number, b"\x01\x01" + bytes(16), [1, 2])
    assert len(known._told) == DEAD_LETTER_COMMANDS_MAX
    world.settle_down()
    assert causes(world) == [SECOND]


def test_malformed_dead_letters_of_another_node_are_harmless(world):
    configure(world)
    world.hosts[1].lead.causes.note(1, b"\x01\x01" + bytes(16), [1, 2])
    for data in (b"", b"\x01", b"\x01\x01" + bytes(7)):
        world.hosts[1].caused(FIRST, data, [1, 2])
    world.settle_down()
    assert len(world.watcher.rejected) == 6  # three on each of two replicas


@pytest.mark.parametrize("node", [1, 2])
def test_large_dead_letter_tells_its_cause_too(world, node, listener, publishes):
    configure(world, max_length=1)
    publish(world, world.open(1, listener), publishes(b"a"))
    session, runs = open_dead_letters(world, node, listener)
    runs.add(FIRST)
    publish(world, session, publishes(bytes(LARGE_BYTES)))
    assert causes(world) == [FIRST]
