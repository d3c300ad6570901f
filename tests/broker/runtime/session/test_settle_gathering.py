"""Non-urgent settles: how long they gather, and what makes them leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from headrace_broker.model.limits import (
    CLOSES_AT_ONCE,
    PIPELINE_COMMANDS,
    SETTLE_GATHER_COUNT,
    SETTLE_GATHER_MS,
    SETTLE_GATHER_PARTS,
    SETTLE_SLOW_MS,
    SETTLE_SLOW_PARTS,
)
from headrace_broker.runtime.contract.lane_port import Gathering
from headrace_broker.runtime.contract.port import ACCEPT, REJECT, RELEASE, Attachment
from headrace_broker.runtime.session.turns import CloseTurns, SettleTurns

PREFETCH = 4 * SETTLE_GATHER_PARTS
MANY = PREFETCH // SETTLE_GATHER_PARTS  # settles that leave at once


@pytest.fixture
def consuming(world, listener, publishes):
    """Returns a session with a consumer that was given messages, and how many commands it sends."""

    def start(attachment, count=PREFETCH, gateway=1):
        session = world.open(gateway, listener)
        world.run(session.attach(1, attachment))
        session.publish(publishes(*(b"m" for _ in range(count))), None)
        session.flush()
        world.settle_down()
        assert len(listener.deliveries) == min(count, attachment.prefetch)
        before = len(world.log)
        return session, lambda: len(world.log) - before

    return start


def settle_each(session, numbers, operation=ACCEPT):
    for number in numbers:
        session.settle(1, operation, number, number)
        session.flush()


@pytest.mark.parametrize("gateway", [1, 2], ids=["same_node", "other_node"])
def test_few_settles_leave_together_when_their_time_is_up(world, consuming, gateway):
    session, commands = consuming(Attachment("c", PREFETCH), gateway=gateway)
    settle_each(session, range(1, MANY))
    world.carry()
    assert commands() == 0
    world.settle_down()
    assert commands() == 1
    assert world.hosts[1].machine.unsettled_count == PREFETCH - MANY + 1


def test_a_part_of_the_prefetch_leaves_at_once(world, consuming):
    session, commands = consuming(Attachment("c", PREFETCH), 2 * PREFETCH)
    settle_each(session, range(1, MANY + 1))
    assert commands() == 1
    world.settle_down()  # others came in their places
    settle_each(session, range(MANY + 1, 2 * MANY))
    assert commands() == 1


def test_more_gathers_where_a_part_of_the_prefetch_takes_long(world, consuming):
    session, commands = consuming(Attachment("c", PREFETCH), 2 * PREFETCH)
    world.owner.now_ms += SETTLE_SLOW_MS - 1
    settle_each(session, range(1, MANY + 1))
    assert commands() == 1, "it took no time that counts"
    world.settle_down()
    world.owner.now_ms += SETTLE_SLOW_MS
    half = PREFETCH // SETTLE_SLOW_PARTS
    settle_each(session, range(MANY + 1, MANY + half))
    assert commands() == 1
    settle_each(session, [MANY + half])
    assert commands() == 2, "half of what it may have is enough, however long it took"
    world.settle_down()  # room in the pipeline
    settle_each(session, range(MANY + half + 1, 2 * MANY + half + 1))
    assert commands() == 3, "the time begins anew when they leave"


def test_whoever_has_little_to_do_is_never_kept_waiting(world, consuming):
    session, commands = consuming(Attachment("c", SETTLE_GATHER_PARTS), SETTLE_GATHER_PARTS)
    settle_each(session, [1])
    assert commands() == 1


def test_whoever_holds_back_all_others_is_not_kept_waiting_for_more(world, consuming):
    session, commands = consuming(Attachment("c", PREFETCH), 2 * PREFETCH)
    held = PREFETCH - SETTLE_GATHER_PARTS
    settle_each(session, [held + 1])
    assert commands() == 1, "though it has others to go on with"
    world.settle_down()
    settle_each(session, [held + 2])
    assert commands() == 2


def test_whoever_has_settled_all_that_there_is_keeps_no_publisher_waiting(world, consuming):
    session, commands = consuming(Attachment("c", 10 * PREFETCH), 1)
    settle_each(session, [1])
    assert commands() == 1


def test_whoever_has_settled_all_in_another_order_keeps_no_publisher_waiting(world, consuming):
    session, commands = consuming(Attachment("c", 10 * PREFETCH), 2)
    settle_each(session, [2])
    assert commands() == 1
    world.settle_down()
    settle_each(session, [1])
    assert commands() == 2


def test_what_was_settled_before_its_turn_is_no_room_to_work_in(world, consuming):
    session, commands = consuming(Attachment("c", PREFETCH), PREFETCH)
    half = PREFETCH // 2
    settle_each(session, range(PREFETCH, half - 1, -1))
    world.settle_down()
    before = commands()
    settle_each(session, range(half - 1, half - MANY, -1))
    assert commands() == before
    settle_each(session, [half - MANY])
    assert commands() == before + 1


def test_many_settles_leave_whatever_the_prefetch(world, consuming):
    had = SETTLE_GATHER_COUNT * SETTLE_GATHER_PARTS
    session, commands = consuming(Attachment("c", 100_000), had)
    settle_each(session, range(1, SETTLE_GATHER_COUNT))
    assert commands() == 0
    settle_each(session, [SETTLE_GATHER_COUNT])
    assert commands() == 1


@pytest.mark.parametrize("operation", [RELEASE, REJECT])
def test_what_goes_back_leaves_at_once_with_what_was_settled_before(world, consuming, operation):
    session, commands = consuming(Attachment("c", PREFETCH))
    settle_each(session, [1])
    assert commands() == 0
    settle_each(session, [2], operation)
    assert commands() == 1


def test_a_prefetch_in_bytes_is_waited_for_by_nobody(world, consuming):
    session, commands = consuming(Attachment("c", PREFETCH, prefetch_bytes=1 << 20))
    settle_each(session, [1])
    assert commands() == 1


def test_other_commands_take_along_what_gathered(world, consuming):
    session, commands = consuming(Attachment("c", PREFETCH))
    settle_each(session, [1])
    world.run(session.attach(2, Attachment("d", 1)))
    assert commands() == 2
    world.settle_down()  # its time is up, and nothing is left
    assert commands() == 2
    settle_each(session, [2])
    assert commands() == 2, "what comes then gathers anew"


def test_settles_that_gather_count_as_sent_for_who_waits_until_all_is_applied(world, consuming):
    session, commands = consuming(Attachment("c", PREFETCH))
    settle_each(session, [1])
    world.run(session.applied())
    assert commands() == 1
    assert world.hosts[1].machine.unsettled_count == PREFETCH - 1


def test_a_session_that_closes_settles_first(world, consuming):
    session, _ = consuming(Attachment("c", PREFETCH))
    settle_each(session, [1, 2])
    session.close()
    world.settle_down()
    assert world.hosts[1].machine.ready_count == PREFETCH - 2


def test_settles_whose_time_is_up_still_wait_for_room_in_the_pipeline(world, consuming):
    session, commands = consuming(Attachment("c", PREFETCH))
    for start in range(PIPELINE_COMMANDS):
        settle_each(session, range(start * MANY + 1, (start + 1) * MANY + 1))
    settle_each(session, [PIPELINE_COMMANDS * MANY + 1])
    world.owner.turn()
    assert commands() == PIPELINE_COMMANDS
    world.settle_down()
    assert commands() == PIPELINE_COMMANDS + 1


class Noting(Gathering):
    """Adds itself once more when its time is up."""

    def __init__(self, turns: SettleTurns) -> None:
        self.turns = turns
        self.times: list[float] = []
        self.twice = asyncio.Event()

    def time_is_up(self) -> None:
        self.times.append(asyncio.get_running_loop().time())
        if len(self.times) < 2:
            self.turns.add(self)
        else:
            self.twice.set()

    def send_close(self) -> None:
        raise AssertionError("nothing ends here")


def test_all_sessions_of_a_node_have_the_same_turns():
    async def body():
        turns = SettleTurns()
        early, late = Noting(turns), Noting(turns)
        turns.add(early)
        turns.add(late)
        turns.add(late)
        async with asyncio.timeout(30):
            await late.twice.wait()
        assert len(early.times) == len(late.times) == 2
        assert early.times[1] - early.times[0] > SETTLE_GATHER_MS / 2000, "it was the same turn"
        turns.add(early)
        turns.stop()
        await asyncio.sleep(3 * SETTLE_GATHER_MS / 1000)
        assert len(early.times) == 2

    asyncio.run(body())


class Ending(Gathering):
    """Notes that it ends, and has others end as it does."""

    def __init__(self, turns: CloseTurns, more: int = 0) -> None:
        self.turns = turns
        self.more = more
        self.ended = 0

    def time_is_up(self) -> None:
        raise AssertionError("nothing gathers here")

    def send_close(self) -> None:
        self.ended += 1
        more, self.more = self.more, 0
        for _ in range(more):
            self.turns.add(self)


def test_few_sessions_end_at_once_and_many_in_turns():
    soon: list[Callable[[], None]] = []
    turns = CloseTurns(soon.append)
    endings = [Ending(turns) for _ in range(3 * CLOSES_AT_ONCE - 1)]
    for each in endings:
        turns.add(each)
    counts = []
    while True:
        counts.append(sum(each.ended for each in endings))
        if not soon:
            break
        soon.pop(0)()
    assert counts[:3] == [CLOSES_AT_ONCE, 2 * CLOSES_AT_ONCE, 3 * CLOSES_AT_ONCE - 1]
    assert len(counts) <= 5
    turns.add(endings[0])
    assert endings[0].ended == 2  # long after that, one ends at once


def test_sessions_that_end_as_another_does_count_too():
    soon: list[Callable[[], None]] = []
    turns = CloseTurns(soon.append)
    one = Ending(turns, more=2 * CLOSES_AT_ONCE)
    turns.add(one)
    assert one.ended == CLOSES_AT_ONCE
    soon.pop(0)()
    assert one.ended == 2 * CLOSES_AT_ONCE
    soon.pop(0)()
    assert one.ended == 2 * CLOSES_AT_ONCE + 1
