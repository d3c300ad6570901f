"""Permissions of administrators whose calls read and write bodies of messages."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.gateways.grpc.backup_world import BackupWorld
from tests.broker.gateways.grpc.test_backup import Backing, refusal

from headrace_broker.gateways.grpc.pb import backup_pb2 as pb
from headrace_broker.model.definition import Permission

OPENING = pb.RestoreRequest(open=pb.RestoreOpen(vhost="/", queue="work", restore_id="r1"))


def run(serve: Any, scenario: Backing) -> None:
    async def with_world(served: Any) -> None:
        async with BackupWorld(served) as world:
            await world.publish(b"a", b"bb")
            await scenario(world)

    serve(with_world)


@pytest.mark.parametrize(
    ("permission", "opens", "restores"),
    [
        (None, False, False),
        (Permission("guest", "/", ".*", ".*", "^$"), False, True),
        (Permission("guest", "/", ".*", "^$", ".*"), True, False),
        (Permission("guest", "/", "^$", ".*", ".*"), True, True),
    ],
    ids=["none", "no read", "no write", "both"],
)
def test_bodies_are_for_administrators_with_a_permission_for_the_queue(
    serve, permission, opens, restores
) -> None:
    async def scenario(world: BackupWorld) -> None:
        world.broker.rules.guarded = True
        if permission is not None:
            world.broker.rules.put_permission(permission)
        wanted = ("PERMISSION_DENIED", "ACCESS_REFUSED", "")
        if opens:
            assert (await world.open_point()).messages == 2
        else:
            assert await refusal(world.open_point()) == wanted
        into = world.restore(OPENING).read()
        if restores:
            assert await refusal(into) == ("FAILED_PRECONDITION", "NOT_EMPTY", "")
        else:
            assert await refusal(into) == wanted

    run(serve, scenario)


def test_a_queue_that_is_not_there_is_refused_alike_without_a_permission(serve) -> None:
    async def scenario(world: BackupWorld) -> None:
        world.broker.rules.guarded = True
        wanted = ("PERMISSION_DENIED", "ACCESS_REFUSED", "")
        assert await refusal(world.open_point(queue="absent")) == wanted

    run(serve, scenario)
