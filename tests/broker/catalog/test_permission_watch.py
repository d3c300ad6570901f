"""Permissions of running work are checked again when the catalog changes, in bounded turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.access import QUEUE, check_administers, check_allowed
from headrace_broker.catalog.access import Caller as User_
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.permission import READ, Rights
from headrace_broker.catalog.permission_watch import (
    ANYWHERE,
    PermissionWatch,
    PermissionWatches,
    needs_nothing,
)
from headrace_broker.catalog.version import SESSIONS
from headrace_broker.model.definition import Permission, User
from headrace_broker.model.limits import JUDGE_TURN_US
from headrace_broker.model.reply_code import ACCESS_REFUSED, CONNECTION_FORCED, AmqpError

TAKEN = (
    "read access to queue '{}' in vhost '{}' refused for user 'bob': the permission was taken away"
)


class World:
    """A catalog with a user bob who may read q in "/", and running work of bob."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.now_us = 0
        self.turns: list[Callable[[], None]] = []
        self.ended: list[tuple[str, int, str]] = []
        self.judged = 0
        for vhost in ("/", "v"):
            driver.do(commands.DeclareVhost(vhost))
        self.put_user()
        self.permit("^q")
        self.permit("^q", "v")
        self.standings = PermissionWatches(driver.catalog, self.turns.append, lambda: self.now_us)

    def do(self, command: Any) -> None:
        self.driver.do(command)
        if hasattr(self, "standings"):
            self.standings.on_events(self.driver.events)

    def put_user(self, tags: tuple[str, ...] = (), **more: Any) -> None:
        self.do(commands.PutUser(User("bob", b"s", b"h", tags), **more))

    def permit(self, read: str, vhost: str = "/") -> None:
        self.do(commands.PutPermission(Permission("bob", vhost, "", "", read)))

    def consume(self, queue: str = "q", vhost: str = "/") -> PermissionWatch:
        def check() -> None:
            self.judged += 1
            self.now_us += 1
            rights = Rights(self.driver.catalog)
            check_allowed(rights, "bob", vhost, READ, QUEUE, queue)

        return self.enter(queue, vhost, check)

    def enter(
        self, name: str, vhost: str, check: Callable[[], None], epoch: int | None = None
    ) -> PermissionWatch:
        def end(error: AmqpError) -> None:
            self.ended.append((name, error.code, error.text))

        standing = PermissionWatch("bob", vhost, check, end, epoch)
        self.standings.enter(standing)
        return standing

    def turn(self) -> None:
        """Run the callbacks that are due in the next turn."""
        turns, self.turns[:] = list(self.turns), []
        for each in turns:
            each()


@pytest.fixture
def world(driver: Any) -> World:
    return World(driver)


class TestPermissions:
    def test_what_is_narrowed_away_ends_and_says_why(self, world: World) -> None:
        world.consume("q1")
        world.consume("q2")
        world.permit("^q2$")
        assert world.ended == []
        world.turn()
        assert world.ended == [("q1", ACCESS_REFUSED, TAKEN.format("q1", "/"))]
        assert len(world.standings) == 1

    def test_what_is_still_covered_goes_on(self, world: World) -> None:
        world.consume()
        world.permit(".*")
        world.turn()
        assert (world.ended, world.judged) == ([], 2)

    def test_other_vhosts_are_not_looked_at(self, world: World) -> None:
        world.consume(vhost="v")
        world.permit("^x$")
        world.turn()
        assert (world.ended, world.judged) == ([], 1)
        world.do(commands.DeletePermission("bob", "v"))
        world.turn()
        assert world.ended == [("q", ACCESS_REFUSED, TAKEN.format("q", "v"))]

    def test_what_matters_anywhere_is_looked_at_for_every_vhost(self, world: World) -> None:
        world.enter(
            "a",
            ANYWHERE,
            lambda: check_allowed(Rights(world.driver.catalog), "bob", "v", READ, QUEUE, "q"),
        )
        world.permit("", "v")
        world.turn()
        assert [name for name, _, _ in world.ended] == ["a"]

    def test_permission_that_is_back_before_the_judgement_ends_nothing(self, world: World) -> None:
        world.consume()
        world.permit("")
        world.permit("^q$")
        world.turn()
        assert world.ended == []

    def test_permission_taken_again_after_a_judgement_ends_all_the_same(self, world: World) -> None:
        world.consume()
        for read in ("^q$", ""):
            world.permit(read)
            world.turn()
        assert len(world.ended) == 1

    def test_vhost_that_goes_takes_permissions_with_it(self, world: World) -> None:
        world.consume(vhost="v")
        world.do(commands.DeleteVhost("v"))
        world.turn()
        assert len(world.ended) == 1

    def test_what_has_left_is_not_ended(self, world: World) -> None:
        standing = world.consume()
        world.permit("")
        world.standings.leave(standing)
        world.standings.leave(standing)
        world.turn()
        assert (world.ended, len(world.standings)) == ([], 0)

    def test_who_may_not_does_not_enter(self, world: World) -> None:
        world.permit("")
        with pytest.raises(AmqpError, match="read access to queue 'q'") as caught:
            world.consume()
        assert "taken away" not in caught.value.text
        assert len(world.standings) == 0

    def test_catalog_that_begins_to_ask_for_permissions_has_all_judged(self, driver: Any) -> None:
        catalog = Catalog()
        driver.catalog, driver.log = catalog, []
        driver.bootstrap()
        driver.do(commands.PutUser(User("bob", b"s", b"h")))
        world = World.__new__(World)
        world.driver, world.now_us, world.turns = driver, 0, []
        world.ended, world.judged = [], 0
        world.standings = PermissionWatches(catalog, world.turns.append, lambda: 0)
        world.consume("q")
        world.do(commands.PutPermission(Permission("bob", "/", "", "", "^x$")))
        world.turn()
        assert len(world.ended) == 1


class TestUsers:
    def test_tag_is_taken_away(self, world: World) -> None:
        world.put_user(("administrator",))

        def check() -> None:
            user = world.driver.catalog.user("bob")
            check_administers(User_("bob", user.tags))

        world.enter("a", ANYWHERE, check)
        world.put_user(("monitoring",))
        world.turn()
        text = "tags: this is for users with the tag 'administrator': the tag was taken away"
        assert world.ended == [("a", ACCESS_REFUSED, text)]

    def test_deleted_user_has_nothing_left(self, world: World) -> None:
        world.enter("session", "v", needs_nothing, 0)
        world.consume()
        world.do(commands.DeleteUser("bob"))
        world.turn()
        text = "user 'bob' was deleted"
        wanted = [("session", CONNECTION_FORCED, text), ("q", CONNECTION_FORCED, text)]
        assert world.ended == wanted

    def test_sessions_end_when_that_is_asked_for(self, world: World) -> None:
        world.enter("old", "/", needs_nothing, world.standings.epoch("bob"))
        world.put_user()
        world.turn()
        assert world.ended == []
        world.put_user(end_sessions=True)
        world.turn()
        assert world.ended == []  # a node that does not know the field has not been there
        world.do(_stamped(commands.PutUser(User("bob", b"s", b"h"), end_sessions=True)))
        world.enter("new", "/", needs_nothing, world.standings.epoch("bob"))
        world.turn()
        [(name, code, text)] = world.ended
        assert (name, code) == ("old", CONNECTION_FORCED)
        assert text.startswith("sessions of user 'bob' from before were ended by a change")

    def test_session_of_a_log_in_from_before_does_not_begin(self, world: World) -> None:
        epoch = world.standings.epoch("bob")
        world.do(_stamped(commands.PutUser(User("bob", b"s", b"h"), end_sessions=True)))
        with pytest.raises(AmqpError, match="log in again"):
            world.enter("late", "/", needs_nothing, epoch)

    def test_user_created_anew_in_the_same_turn_gets_nothing_of_the_old_one(
        self, world: World
    ) -> None:
        """Without epochs, as long as a node of the cluster is older than them."""
        world.enter("session", "v", needs_nothing, 0)
        world.consume()
        world.do(commands.DeleteUser("bob"))
        world.put_user()
        world.permit("^q")
        assert world.standings.epoch("bob") == 0
        world.enter("new", "v", needs_nothing, 0)
        world.turn()
        assert [(name, code) for name, code, _ in world.ended] == [
            ("session", CONNECTION_FORCED),
            ("q", CONNECTION_FORCED),
        ]
        assert {text for _, _, text in world.ended} == {"user 'bob' was deleted"}
        assert len(world.standings) == 1

    def test_next_user_of_the_name_has_no_part_in_it(self, world: World) -> None:
        """A node that catches up by a snapshot may not see the states in between."""
        world.enter("a", "/", needs_nothing, world.standings.epoch("bob"))
        before = world.driver.catalog.snapshot()
        world.driver.do(commands.DeleteUser("bob"))
        world.driver.do(_stamped(commands.PutUser(User("bob", b"s", b"h"))))
        world.driver.do(commands.PutPermission(Permission("bob", "/", "", "", "^q")))
        world.driver.do(commands.PutPermission(Permission("bob", "v", "", "", "^q")))
        after = world.driver.catalog.snapshot()
        world.driver.catalog.load(before)
        world.standings.on_events(world.driver.catalog.load(after))
        world.turn()
        assert [name for name, _, _ in world.ended] == ["a"]


class TestTurns:
    def test_work_of_a_turn_is_bounded(self, world: World) -> None:
        for number in range(3 * JUDGE_TURN_US):
            world.consume(f"q{number}")
        world.permit("")
        assert len(world.turns) == 1
        counts = []
        while world.turns:
            before = world.now_us
            world.turn()
            counts.append(len(world.ended))
            assert world.now_us - before <= JUDGE_TURN_US
            assert len(world.turns) <= 1
        assert counts == [JUDGE_TURN_US, 2 * JUDGE_TURN_US, 3 * JUDGE_TURN_US]

    def test_change_in_between_counts_for_what_was_judged_before(self, world: World) -> None:
        for number in range(2 * JUDGE_TURN_US):
            world.consume(f"q{number}")
        world.permit("^q")
        world.turn()
        world.permit("")
        while world.turns:
            world.turn()
        assert len(world.ended) == 2 * JUDGE_TURN_US

    def test_fault_at_one_does_not_spare_those_behind(self, world: World) -> None:
        def fault() -> None:
            if armed:
                raise ZeroDivisionError

        armed = False
        world.enter("faulty", "/", fault)
        world.consume()
        armed = True
        world.permit("")
        with pytest.raises(ZeroDivisionError):
            world.turn()
        world.turn()
        assert [name for name, _, _ in world.ended] == ["q"]

    def test_what_ends_others_on_its_way(self, world: World) -> None:
        first = world.consume("q1")
        second = world.consume("q2")
        first.end = lambda error: world.standings.leave(second)
        world.permit("")
        world.turn()
        assert (world.ended, len(world.standings)) == ([], 0)


class TestSnapshots:
    def test_epochs_are_in_snapshots_that_older_nodes_refuse(self, driver: Any) -> None:
        def version() -> int:
            return int(msgspec.msgpack.decode(driver.catalog.snapshot())["version"])

        driver.do(commands.PutUser(User("bob", b"s", b"h")))
        before = version()
        driver.do(_stamped(commands.PutUser(User("ann", b"s", b"h"))))
        assert version() == 7 > before
        other = Catalog.restore(driver.catalog.snapshot())
        assert other.session_epoch("ann") == driver.catalog.session_epoch("ann") > 0
        assert other.session_epoch("bob") == 0
        driver.do(commands.DeleteUser("ann"))
        assert version() == before


def _stamped(command: commands.PutUser) -> commands.PutUser:
    return commands.PutUser(user=command.user, end_sessions=command.end_sessions, version=SESSIONS)
