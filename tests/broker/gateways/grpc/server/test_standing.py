"""Calls over gRPC end when what they need is taken away, whatever their clients do."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from tests.broker.gateways.grpc.consumer import Consumer, bodies, publish
from tests.broker.gateways.grpc.publisher import failed

from headrace_broker.catalog.event import PermissionChanged, UserChanged
from headrace_broker.catalog.permission_watch import PermissionWatches
from headrace_broker.catalog.store import CatalogStore
from headrace_broker.gateways.grpc.server.authentication import Caller
from headrace_broker.gateways.grpc.server.errors import CallError
from headrace_broker.gateways.grpc.server.standing import WhileAllowed
from headrace_broker.model.definition import Permission, User
from headrace_broker.model.reply_code import ACCESS_REFUSED, AmqpError
from headrace_protos.broker.v1.messaging_pb2 import Credit

ANN = Caller("ann", (), "127.0.0.1", 1, 0)


def permit(broker: Any, read: str) -> None:
    """Set guest's read permission, and notify the node."""
    permission = Permission("guest", "/", ".*", ".*", read)
    broker.rules.guarded = True
    broker.rules.put_permission(permission)
    broker.change(PermissionChanged("guest", "/", permission))


def end_sessions(broker: Any) -> None:
    broker.rules.applied_index = 7
    broker.rules.end_sessions("guest")
    broker.change(UserChanged("guest", broker.rules.user("guest")))


def delete(broker: Any) -> None:
    broker.rules.drop_user("guest")
    broker.change(UserChanged("guest", None))


TAKEN = "read access to queue 'q' in vhost '/' refused for user 'guest': "
TAKEN += "the permission was taken away"
ENDED = "sessions of user 'guest' from before were ended by a change of the user: log in again"
WAYS = {
    "permission": (lambda broker: permit(broker, "^x$"), "PERMISSION_DENIED", TAKEN),
    "user": (delete, "UNAUTHENTICATED", "user 'guest' was deleted"),
    "sessions": (end_sessions, "UNAUTHENTICATED", ENDED),
}


@pytest.mark.parametrize("way", list(WAYS))
def test_consumer_that_only_waits_ends_and_gives_back(serve, broker, way) -> None:
    queue = broker.add_queue("q")
    publish(queue, b"held")
    change, code, text = WAYS[way]

    async def scenario(served: Any) -> None:
        permit(broker, ".*")
        consumer = await Consumer(served, credit=Credit(messages=9)).open()
        assert bodies(await consumer.receive(1)) == [b"held"]
        change(broker)
        error, _, _ = await failed(consumer.call)
        assert (error.code().name, error.details()) == (code, text)

    serve(scenario)
    assert [message.number for message in queue.ready] == [1]
    assert broker.connections == {}
    assert len(broker.standings) == 0


def test_consumer_that_is_still_covered_goes_on(serve, broker) -> None:
    queue = broker.add_queue("q")

    async def scenario(served: Any) -> None:
        consumer = await Consumer(served, credit=Credit(messages=9)).open()
        permit(broker, "^q$")
        publish(queue, b"more")
        assert bodies(await consumer.receive(1)) == [b"more"]

    serve(scenario)


class World:
    """A catalog with a user ann, who is permitted until `allowed` is False."""

    def __init__(self) -> None:
        self.rules = CatalogStore()
        self.rules.put_user(User("ann", b"", b""))
        loop = asyncio.get_running_loop()
        self.standings = PermissionWatches(self.rules, loop.call_soon, lambda: 0)
        self.allowed = True

    def judge(self) -> None:
        if not self.allowed:
            raise AmqpError(ACCESS_REFUSED, "no")

    def forbid(self) -> None:
        self.allowed = False
        self.standings.on_events([UserChanged("ann", self.rules.user("ann"))])

    def within(self) -> WhileAllowed:
        return WhileAllowed(self.standings, ANN, "/", self.judge)


def in_world(scenario: Any) -> None:
    async def run() -> None:
        async with asyncio.timeout(30):
            await scenario(World())

    asyncio.run(run())


class TestWhileAllowed:
    def test_what_is_within_is_cancelled_and_cleaned_up(self) -> None:
        async def scenario(world: World) -> None:
            cleaned = []

            async def work() -> None:
                with world.within():
                    world.forbid()
                    try:
                        await asyncio.Event().wait()
                    finally:
                        cleaned.append(True)

            with pytest.raises(CallError, match="no: the permission was taken away") as caught:
                await work()
            assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED
            assert cleaned == [True]
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            assert len(world.standings) == 0

        in_world(scenario)

    def test_who_may_not_does_not_begin(self) -> None:
        async def scenario(world: World) -> None:
            world.allowed = False
            with pytest.raises(CallError, match="no"):
                world.within().__enter__()
            assert len(world.standings) == 0

        in_world(scenario)

    def test_the_outermost_of_two_that_end_says_why(self) -> None:
        async def scenario(world: World) -> None:
            async def work() -> None:
                with world.within(), world.within():
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await asyncio.sleep(0)
            world.rules.drop_user("ann")
            world.forbid()
            with pytest.raises(CallError, match="user 'ann' was deleted") as caught:
                await task
            assert caught.value.code is grpc.StatusCode.UNAUTHENTICATED

        in_world(scenario)

    def test_cancellation_by_others_stays_one(self) -> None:
        async def scenario(world: World) -> None:
            async def work() -> None:
                with world.within():
                    await asyncio.Event().wait()

            for forbidden in (False, True):
                world.allowed = True
                task = asyncio.create_task(work())
                await asyncio.sleep(0)
                if forbidden:
                    world.forbid()
                task.cancel()
                with pytest.raises((asyncio.CancelledError, CallError)):
                    await task
                assert len(world.standings) == 0

        in_world(scenario)

    def test_what_is_over_before_the_judgement_is_left_alone(self) -> None:
        async def scenario(world: World) -> None:
            with world.within():
                world.forbid()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        in_world(scenario)
