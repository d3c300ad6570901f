"""Deletions that are tried until they are done."""

from __future__ import annotations

import asyncio

import pytest

from headrace_broker.model.reply_code import INTERNAL_ERROR, AmqpError
from headrace_broker.runtime.cluster import reaper as module
from headrace_broker.runtime.cluster.reaper import Reaper
from headrace_broker.runtime.contract.port import Attachment


class Deletions:
    """A topology that fails a few times first."""

    def __init__(self):
        self.failures = 0
        self.done = []
        self.tried = 0

    async def _delete(self, what):
        self.tried += 1
        if self.failures:
            self.failures -= 1
            raise AmqpError(INTERNAL_ERROR, "no quorum")
        self.done.append(what)

    async def drop_owner(self, owner):
        await self._delete(owner)

    async def drop_unused(self, queue):
        await self._delete(queue.name)


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    """Try again in the next turn of the loop."""
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)


@pytest.fixture
def deletions():
    """A topology that deletes."""
    return Deletions()


def finish(deletions, world, action):
    """Run `action` with a reaper and wait until nothing is left to do."""

    async def work():
        reaper = Reaper(deletions, {7: world.hosts[1]})
        result = action(reaper)
        if result is not None:
            await result
        await asyncio.gather(*reaper._tasks, return_exceptions=True)

    asyncio.run(asyncio.wait_for(work(), 5))


def test_owner_is_dropped_at_once(deletions, world):
    finish(deletions, world, lambda reaper: reaper.drop_owner("me"))
    assert (deletions.done, deletions.tried) == (["me"], 1)


def test_owner_is_dropped_later_and_nobody_waits_for_it(deletions, world):
    deletions.failures = 3

    async def work():
        reaper = Reaper(deletions, {})
        await reaper.drop_owner("me")
        assert deletions.done == []
        assert len(reaper._tasks) == 1
        await asyncio.gather(*reaper._tasks, return_exceptions=True)

    asyncio.run(asyncio.wait_for(work(), 5))
    assert (deletions.done, deletions.tried) == (["me"], 4)


def test_unused_queue_is_deleted_later(deletions, world):
    deletions.failures = 2
    finish(deletions, world, lambda reaper: reaper.drop_unused(world.queue))
    assert (deletions.done, deletions.tried) == (["work"], 3)


def test_queue_that_has_a_consumer_again_stays(deletions, world, listener):
    session = world.open(1, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    finish(deletions, world, lambda reaper: reaper.drop_unused(world.queue))
    assert deletions.tried == 0


def test_queue_that_is_led_elsewhere_is_left_to_its_leader(deletions, world):
    world.lead(2)
    finish(deletions, world, lambda reaper: reaper.drop_unused(world.queue))
    assert deletions.tried == 0


def test_expired_queue_is_deleted_later(deletions, world):
    deletions.failures = 2
    finish(deletions, world, lambda reaper: reaper.drop_expired(world.queue))
    assert (deletions.done, deletions.tried) == (["work"], 3)


def test_expired_queue_is_deleted_by_one_task(deletions, world):
    def twice(reaper):
        reaper.drop_expired(world.queue)
        reaper.drop_expired(world.queue)
        assert len(reaper._tasks) == 1

    finish(deletions, world, twice)
    assert deletions.tried == 1


def test_expired_queue_that_is_used_meanwhile_stays(deletions, world):
    deletions.failures = 1 << 30

    async def work():
        reaper = Reaper(deletions, {7: world.hosts[1]})
        reaper.drop_expired(world.queue)
        await asyncio.sleep(0)
        world.clock.ms += 1
        world.hosts[1].use()
        await asyncio.gather(*reaper._tasks, return_exceptions=True)
        assert len(reaper._tasks) == 0
        deletions.failures = 0
        reaper.drop_expired(world.queue)
        await asyncio.gather(*reaper._tasks, return_exceptions=True)

    asyncio.run(asyncio.wait_for(work(), 5))
    assert deletions.done == ["work"]


def test_stop_ends_what_is_left(deletions, world):
    deletions.failures = 1 << 30

    async def work():
        reaper = Reaper(deletions, {7: world.hosts[1]})
        await reaper.drop_owner("me")
        reaper.drop_unused(world.queue)
        await asyncio.sleep(0)
        assert len(reaper._tasks) == 2
        reaper.stop()
        await asyncio.gather(*reaper._tasks, return_exceptions=True)

    asyncio.run(asyncio.wait_for(work(), 5))
    assert deletions.done == []
