"""Messages that leave a queue, at its leader."""

from __future__ import annotations

import pytest

from headrace_broker.core.queue.command.leader_command import encode_forget
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.messages.effect import REASON_MAXLEN, REASON_REJECTED, Acquired
from headrace_broker.core.queue.messages.settings import (
    DEAD_LETTER_AT_LEAST_ONCE,
    DEAD_LETTER_AT_MOST_ONCE,
    OVERFLOW_REJECT_PUBLISH,
    OVERFLOW_REJECT_PUBLISH_DLX,
    QueueSettings,
)
from headrace_broker.model.flow import DEAD_LETTERS, Cause
from headrace_broker.model.limits import DEAD_LETTERS_CUT_BYTES, DEAD_LETTERS_UNREAD_MAX
from headrace_broker.model.message import Publish
from headrace_broker.model.session import session_id, tells_deaths
from headrace_broker.runtime.contract.port import REJECT, Attachment, PendingConfirm
from headrace_broker.runtime.replica.dead_letter_queue import DeadRun
from headrace_broker.runtime.session.session import QueueSession


@pytest.fixture
def configured(world):
    """Lead with settings."""

    def lead(**values):
        settings = QueueSettings()
        for name, value in values.items():
            setattr(settings, name, value)
        world.watcher.version = MACHINE_VERSION
        world.watcher.settings = settings
        world.lead(1)
        world.settle_down()
        return world

    return lead


def reject_all(world, session, listener, bodies):
    session.publish(bodies, None)
    session.flush()
    world.settle_down()
    world.run(session.attach(1, Attachment("c", 100)))
    world.settle_down()
    session.settle(1, REJECT, 1, len(bodies))
    session.flush()
    world.settle_down()


def test_large_dead_letters_are_handed_over_in_lots(configured, listener):
    world = configured(dead_letter=DEAD_LETTER_AT_MOST_ONCE)
    lots = world.watcher.lots
    half = bytes(DEAD_LETTERS_CUT_BYTES // 2)
    messages = [Publish(1, b"\x01x\x01k", False, False, b"\x00\x00", half) for _ in range(5)]
    reject_all(world, world.open(3, listener), listener, messages)
    assert [len(dead_letters) for dead_letters in lots] == [2, 2, 1]


def test_rejected_messages_are_dead_letters_with_their_bodies(configured, listener):
    world = configured(dead_letter=DEAD_LETTER_AT_MOST_ONCE)
    session = world.open(3, listener)
    messages = [
        Publish(1, b"\x01x\x01k", False, False, b"\x10\x00\x02", b"one"),
        Publish(1, b"\x01x\x01l", False, False, b"\x00\x00", b"two"),
    ]
    reject_all(world, session, listener, messages)
    dead_letters = world.watcher.all_dead_letters
    assert [(x.route, x.properties, x.body) for x in dead_letters] == [
        (b"\x01x\x01k", b"\x10\x00\x02", b"one"),
        (b"\x01x\x01l", b"\x00\x00", b"two"),
    ]
    assert {int(x.reason) for x in dead_letters} == {REASON_REJECTED}
    assert not any(x.trusted for x in dead_letters)
    assert [int(x.byte_count) for x in dead_letters] == [10, 9]


def test_only_the_leader_lets_dead_letters_go(configured, listener, publishes):
    world = configured(dead_letter=DEAD_LETTER_AT_MOST_ONCE)
    session = world.open(2, listener)
    reject_all(world, session, listener, publishes(b"x"))
    assert len(world.watcher.all_dead_letters) == 1


def test_past_of_a_dead_letter_is_trusted_when_a_broker_wrote_it(configured, listener, publishes):
    world = configured(dead_letter=DEAD_LETTER_AT_MOST_ONCE)
    number = session_id(1, 1, 77, deaths=True)
    board = world.boards[1]
    account = world.ledger.open(Cause("n/77", DEAD_LETTERS, "", "n1"))
    session = QueueSession(
        number,
        world.queue,
        listener,
        board,
        world.owner,
        world.traffic,
        account,
        world.gates.enter(world.queue.group),
    )
    board.sessions[number] = session.end
    reject_all(world, session, listener, publishes(b"x"))
    [dead_letter] = world.watcher.all_dead_letters
    assert dead_letter.trusted


def test_session_ids_of_the_broker_itself_are_told_apart():
    plain = session_id(1023, 5, 3)
    marked = session_id(1023, 5, 3, deaths=True)
    assert (tells_deaths(plain), tells_deaths(marked)) == (False, True)
    assert plain != marked
    assert marked < 1 << 62


def test_refused_publishes_are_dead_letters_where_overflow_says_so(configured, listener, publishes):
    world = configured(
        dead_letter=DEAD_LETTER_AT_MOST_ONCE, max_length=1, overflow=OVERFLOW_REJECT_PUBLISH_DLX
    )
    session = world.open(1, listener)
    pending_confirm = PendingConfirm(1, 2)
    for bodies, waiting in (
        (publishes(b"a", b"b"), None),
        (publishes(b"c", b"d"), pending_confirm),
    ):
        session.publish(bodies, waiting)
        session.flush()
        world.settle_down()
    dead_letters = world.watcher.all_dead_letters
    assert b"d" in [dead_letter.body for dead_letter in dead_letters]
    assert {int(dead_letter.reason) for dead_letter in dead_letters} == {REASON_MAXLEN}
    assert listener.rejected == [pending_confirm]
    held = {int(host.machine.ready_count) for host in world.hosts.values()}
    assert held == {4 - len(dead_letters)}


def test_kept_dead_letters_are_told_and_forgotten(configured, listener, publishes):
    world = configured(dead_letter=DEAD_LETTER_AT_LEAST_ONCE, overflow=OVERFLOW_REJECT_PUBLISH)
    session = world.open(1, listener)
    reject_all(world, session, listener, publishes(b"x", b"y"))
    host = world.hosts[1]
    assert (world.watcher.all_dead_letters, world.watcher.kept) == ([], 1)
    kept = host.kept(10)
    assert len(kept) == 2
    assert len(host.kept(1)) == 1
    dead_letters = [host.dead_letters([message], reason, print)[0] for message, reason in kept]
    assert [dead_letter.body for dead_letter in dead_letters] == [b"x", b"y"]
    assert {int(dead_letter.reason) for dead_letter in dead_letters} == {REASON_REJECTED}
    world.lead(2)
    assert len(world.hosts[2].kept(10)) == 2
    assert not host.forget([1])
    assert world.hosts[2].forget([int(dead_letters[0].message_id)])
    world.settle_down()
    assert world.watcher.forgotten == [int(dead_letters[0].message_id)]
    assert [len(each.kept(10)) for each in world.hosts.values()] == [1, 1]


def test_forget_that_the_log_does_not_take_is_told(configured, listener, publishes):
    world = configured(dead_letter=DEAD_LETTER_AT_LEAST_ONCE, overflow=OVERFLOW_REJECT_PUBLISH)
    world.busy = True
    assert not world.hosts[1].forget([1])
    world.busy = False
    assert world.hosts[1].propose(encode_forget([99])) == 1
    world.settle_down()
    assert world.watcher.forgotten == [99]


def test_dead_letters_whose_entries_are_read_first_leave_in_the_order_of_death(
    configured, listener, publishes
):
    world = configured(dead_letter=DEAD_LETTER_AT_MOST_ONCE)
    session = world.open(3, listener)
    host = world.hosts[1]
    for body in (b"a", b"b"):
        session.publish(publishes(body), None)
        session.flush()
        world.settle_down()
    world.run(session.attach(1, Attachment("c", 100)))
    world.settle_down()
    world.disk_is_slow = True
    for number in (1, 2):
        session.settle(1, REJECT, number, number)
        session.flush()
        world.settle_down()
    assert (world.watcher.all_dead_letters, host.dying.unread_count) == ([], 2)
    first, second = (host.held()[0], host.held()[1])
    assert list(world.hosts[2].held()) == []  # a follower makes no dead letters
    world.read_all()
    assert [dead_letter.body for dead_letter in world.watcher.all_dead_letters] == [b"a", b"b"]
    assert (host.dying.unread_count, list(host.held())) == (0, [])
    assert {first, second} <= set(world.forgotten)


def test_what_dies_later_waits_behind_what_is_read(configured, listener, publishes):
    world = configured(dead_letter=DEAD_LETTER_AT_MOST_ONCE)
    session = world.open(3, listener)
    session.publish(publishes(b"a"), None)
    session.flush()
    session.publish(publishes(b"b"), None)
    session.flush()
    world.settle_down()
    world.run(session.attach(1, Attachment("c", 100)))
    world.settle_down()
    world.disk_is_slow = True
    session.settle(1, REJECT, 1, 1)
    session.flush()
    world.settle_down()
    world.disk_is_slow = False  # the second one is in memory
    session.settle(1, REJECT, 2, 2)
    session.flush()
    world.settle_down()
    assert world.watcher.all_dead_letters == []
    world.read_all()
    assert [dead_letter.body for dead_letter in world.watcher.all_dead_letters] == [b"a", b"b"]


def test_dead_letters_are_read_on_when_another_replica_leads(configured, listener, publishes):
    world = configured(dead_letter=DEAD_LETTER_AT_MOST_ONCE)
    session = world.open(3, listener)
    session.publish(publishes(b"x"), None)
    session.flush()
    world.settle_down()
    world.run(session.attach(1, Attachment("c", 100)))
    world.settle_down()
    world.disk_is_slow = True
    session.settle(1, REJECT, 1, 1)
    session.flush()
    world.settle_down()
    world.lead(2)
    world.read_all()
    assert [dead_letter.body for dead_letter in world.watcher.all_dead_letters] == [b"x"]


def test_unread_dead_letters_are_lost_with_the_log_and_beyond_their_bound(
    configured, listener, publishes
):
    world = configured(dead_letter=DEAD_LETTER_AT_MOST_ONCE)
    session = world.open(3, listener)
    for body in (b"a", b"b"):
        session.publish(publishes(body), None)
        session.flush()
        world.settle_down()
    world.run(session.attach(1, Attachment("c", 100)))
    world.settle_down()
    world.disk_is_slow = True
    session.settle(1, REJECT, 1, 1)
    session.flush()
    world.settle_down()
    host = world.hosts[1]
    many = [Acquired(9, 2, 0, 1, 0, 0)] * DEAD_LETTERS_UNREAD_MAX
    host.dying.accept(DeadRun(many, REASON_REJECTED, [0] * len(many), {}))
    assert world.watcher.letters_lost == DEAD_LETTERS_UNREAD_MAX
    [dead] = host.held()
    host.log.replaced()  # by the snapshot of another replica
    world.gone.add(dead)
    world.read_all()
    assert (world.watcher.all_dead_letters, world.watcher.letters_lost) == (
        [],
        DEAD_LETTERS_UNREAD_MAX + 1,
    )
    assert host.dying.unread_count == 0


def test_nothing_expires_while_dead_letters_are_read(configured, listener, publishes):
    world = configured(dead_letter=DEAD_LETTER_AT_MOST_ONCE, message_ttl_ms=10)
    session = world.open(3, listener)
    for body in (b"a", b"b"):
        session.publish(publishes(body), None)
        session.flush()
        world.settle_down()
        world.clock.ms += 5
    world.disk_is_slow = True
    host = world.hosts[1]
    world.clock.ms += 1
    host.tick(world.clock.ms)
    world.settle_down()
    assert (host.machine.ready_count, host.dying.unread_count) == (1, 1)
    world.clock.ms += 100
    host.tick(world.clock.ms)
    world.settle_down()
    assert host.machine.ready_count == 1
    world.read_all()
    host.tick(world.clock.ms)
    world.settle_down()
    assert [dead_letter.body for dead_letter in world.watcher.all_dead_letters] == [b"a", b"b"]
