"""Permissions of administrators whose calls read and write bodies of messages."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from tests.broker.gateways.grpc.backup.test_backup import Backing, refusal
from tests.broker.gateways.grpc.backup_world import BackupWorld

from headrace_broker.model.definition import Permission
from headrace_protos.broker.v1 import backup_pb2 as pb

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


ALL = dict.fromkeys(("configure", "write", "read"), ".*")
UNKNOWN = ("NOT_FOUND", "UNKNOWN_POINT", "")
DENIED = ("PERMISSION_DENIED", "ACCESS_REFUSED", "")


def guarded(world: BackupWorld) -> None:
    """Guard the catalog, and let two administrators read the queue."""
    world.broker.rules.guarded = True
    world.broker.users.add("other")
    for user in ("guest", "other"):
        world.broker.rules.put_permission(Permission(user, "/", **ALL))


async def answer(call: Any) -> str:
    """Return what a refused call says."""
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await call
    return f"{failure.value.code().name}: {failure.value.details()}"


def test_a_point_is_for_the_user_who_opened_it(serve) -> None:
    async def scenario(world: BackupWorld) -> None:
        guarded(world)
        point = (await world.open_point()).point
        guessed = f"{point}0"
        assert await refusal(world.read(point, "other")) == UNKNOWN
        keep = pb.KeepPointRequest(point=point, done_id=2)
        assert await refusal(world.call("Keep", keep, "other")) == UNKNOWN
        absent = await answer(world.read(guessed, "other"))
        assert await answer(world.read(point, "other")) == absent
        keep_guessed = pb.KeepPointRequest(point=guessed, done_id=2)
        absent = await answer(world.call("Keep", keep_guessed, "other"))
        assert await answer(world.call("Keep", keep, "other")) == absent
        for name in (point, guessed):  # neither tells whether there is such a point
            await world.call("Close", pb.ClosePointRequest(point=name), "other")
        assert len(await world.read(point)) == 1
        assert world.points.count == 1

    run(serve, scenario)


def test_a_point_is_judged_at_each_call_by_permissions_as_of_then(serve) -> None:
    async def scenario(world: BackupWorld) -> None:
        guarded(world)
        point = (await world.open_point()).point
        world.broker.rules.drop_permission(Permission("guest", "/", **ALL))
        assert await refusal(world.read(point)) == DENIED
        assert await refusal(world.call("Keep", pb.KeepPointRequest(point=point))) == DENIED
        assert await refusal(world.call("Close", pb.ClosePointRequest(point=point))) == DENIED
        world.broker.rules.put_permission(Permission("guest", "/", ".*", ".*", "^other$"))
        assert await refusal(world.read(point)) == DENIED
        assert await answer(world.read(point)) == (
            "PERMISSION_DENIED: read access to queue 'work' in vhost '/' refused for user 'guest': "
            "the permission was taken away"
        )
        world.broker.rules.put_permission(Permission("guest", "/", **ALL))
        assert len(await world.read(point)) == 1
        await world.call("Close", pb.ClosePointRequest(point=point))
        assert world.points.count == 0

    run(serve, scenario)
