"""Catalogs of different releases: nothing is proposed or left out that one does not know."""

from __future__ import annotations

from types import UnionType
from typing import Any, get_args

import msgspec
import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog import version as versions
from headrace_broker.catalog.command import AnyCommand, encode_request
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.request import Request, encode_envelope
from headrace_broker.catalog.result import Exists, Ok, Refused
from headrace_broker.catalog.version import (
    CATALOG_VERSION,
    COMMAND_VERSIONS,
    FIELD_VERSIONS,
    FIRST,
    GATED,
    LATER_SEMANTICS,
    LOCAL_RANDOM,
    MEMBERS,
    SESSIONS,
    VALUE_VERSIONS,
    CatalogVersionError,
    known_version,
    required_version,
    stamped,
    target_problem,
    upgrade_problem,
)
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.model.definition import Exchange, Node, User

N4 = Node(4, "n4", "127.0.0.1:7004", disk=44)
ADVICE = commands.PutAdvice((), 1)

# Fields of each command. Whoever adds one says in `FIELD_VERSIONS` from which version on it may be
# set, or finds that older nodes may ignore it, and writes it down here.
FIELDS = {
    "barrier": "",
    "bootstrap": "nodes vhost user grant",
    "declare_nodes": "nodes",
    "announce_node": (
        "node machine_version disk name address catalog_version message_bytes_max zone"
    ),
    "admit_node": "node",
    "set_maintenance": "node on",
    "raise_cluster_version": "to",
    "forget_node": "node bars_unknown",
    "declare_vhost": "name",
    "put_vhost": "vhost creator",
    "delete_vhost": "name",
    "put_user": "user end_sessions",
    "rehash_user": "name current salt password_hash",
    "delete_user": "name",
    "put_permission": "permission",
    "delete_permission": "user vhost",
    "put_topic_permission": "permission",
    "delete_topic_permissions": "user vhost exchange",
    "put_policy": "policy",
    "delete_policy": "vhost name operator",
    "set_vhost_limits": "vhost limits replace",
    "set_user_limits": "user limits replace",
    "set_parameter": "name value",
    "put_advice": "items at_ms",
    "delete_advice": "vhost queue kind author",
    "declare_exchange": "exchange",
    "delete_exchange": "vhost name if_unused",
    "declare_queue": "vhost name kind durable exclusive auto_delete owner arguments preferred_node "
    "replicas member_ids",
    "set_members": "vhost name group add remove",
    "settle_members": "group revision left",
    "delete_queue": "vhost name group",
    "bind": "binding",
    "unbind": "binding",
    "drop_transient": "owner node group_below",
}


def say(driver: Any, node: int, catalog: int, queue_machine: int = MACHINE_VERSION) -> None:
    assert isinstance(
        driver.do(commands.AnnounceNode(node, queue_machine, catalog_version=catalog)), Ok | Exists
    )


def announced(catalog: Catalog, node: int) -> Node:
    """Return what a node that the catalog knows has said of itself."""
    found = catalog.node(node)
    assert found is not None
    return found


def knowing(driver: Any, *known: int) -> Any:
    for node, catalog in enumerate(known, 1):
        say(driver, node, catalog)
    return driver


class TestTable:
    def test_each_command_has_a_version_and_no_other_has(self) -> None:
        assert isinstance(AnyCommand, UnionType)
        assert set(COMMAND_VERSIONS) == set(get_args(AnyCommand))

    def test_versions_go_from_the_first_to_the_newest_that_this_code_knows(self) -> None:
        later = {version for each in LATER_SEMANTICS.values() for version in each}
        fields = {row.version for row in FIELD_VERSIONS}
        values = {row.version for row in VALUE_VERSIONS}
        found = set(COMMAND_VERSIONS.values()) | later | fields | values
        assert found == set(range(FIRST, CATALOG_VERSION + 1))

    def test_fields_are_known_to_whoever_judges_them(self) -> None:
        found = {}
        for kind in COMMAND_VERSIONS:
            own = [name for name in kind.__struct_fields__ if name != "version"]
            found[str(kind.__struct_config__.tag)] = " ".join(own)
        assert found == FIELDS
        for row in FIELD_VERSIONS:
            assert row.field in row.command.__struct_fields__
            assert row.version > COMMAND_VERSIONS[row.command]


class TestWhatNodesKnow:
    def test_node_that_said_nothing_knows_the_first_version(self) -> None:
        assert known_version(N4) == FIRST

    def test_node_of_before_catalog_versions_is_known_by_its_queue_machine(self) -> None:
        assert known_version(Node(4, "n4", "h:4", machine_version=3)) == FIRST
        assert known_version(Node(4, "n4", "h:4", machine_version=4)) == MEMBERS

    def test_what_a_node_says_counts_and_older_nodes_ignore_it(self, driver: Any) -> None:
        say(driver, 2, 7)
        assert known_version(announced(driver.catalog, 2)) == 7
        restored = Catalog.restore(driver.catalog.snapshot())
        assert known_version(announced(restored, 2)) == 7
        say(driver, 2, 0)  # an older release was put back
        assert known_version(announced(driver.catalog, 2)) == MEMBERS
        assert isinstance(driver.do(commands.AnnounceNode(2, 4, catalog_version=-1)), Refused)


class TestProposing:
    def test_nothing_is_in_the_way_when_all_nodes_know_it(self, driver: Any) -> None:
        knowing(driver, GATED, GATED, GATED)
        for command in (ADVICE, commands.AdmitNode(N4), commands.DeleteVhost("/")):
            assert upgrade_problem(driver.catalog, 1, command) == ""

    def test_older_node_is_named(self, driver: Any) -> None:
        knowing(driver, GATED, GATED, 0)
        assert upgrade_problem(driver.catalog, 1, ADVICE) == (
            "node 'n3' runs an older version: upgrade it before 'put_advice' is used (that needs "
            "catalog version 3, and it knows 2)"
        )
        assert upgrade_problem(driver.catalog, 1, commands.AdmitNode(N4)) == ""

    def test_drained_node_counts(self, driver: Any) -> None:
        knowing(driver, GATED, GATED, 0)
        driver.do(commands.SetMaintenance(3, True))
        assert "'n3' runs an older version" in upgrade_problem(driver.catalog, 1, ADVICE)

    def test_node_that_said_nothing_counts(self, driver: Any) -> None:
        knowing(driver, GATED, GATED, GATED)
        driver.do(commands.AdmitNode(N4))
        problem = upgrade_problem(driver.catalog, 1, commands.SetMaintenance(2, True))
        assert problem.startswith("node 'n4' has not said which release it runs: start or forget")
        assert upgrade_problem(driver.catalog, 1, commands.DeleteVhost("/")) == ""

    def test_proposer_itself_knows_all_that_it_proposes(self, driver: Any) -> None:
        knowing(driver, 0, GATED, GATED)
        assert upgrade_problem(driver.catalog, 1, ADVICE) == ""
        assert "'n1'" in upgrade_problem(driver.catalog, 2, ADVICE)

    def test_whoever_is_forgotten_need_not_know_how(self, driver: Any) -> None:
        knowing(driver, GATED, GATED, 1)
        assert upgrade_problem(driver.catalog, 1, commands.ForgetNode(3, bars_unknown=True)) == ""
        assert "'n3'" in upgrade_problem(
            driver.catalog, 1, commands.ForgetNode(2, bars_unknown=True)
        )

    def test_replicas_leave_a_node_that_was_never_there(self, driver: Any) -> None:
        knowing(driver, GATED, GATED)  # the third has no data, as far as anybody knows
        queue = driver.queue("q", "quorum", replicas=3)
        leave = commands.SetMembers("/", "q", queue.group, remove=(3,))
        assert upgrade_problem(driver.catalog, 1, leave) == ""
        leave = commands.SetMembers("/", "q", queue.group, remove=(2,))
        assert "'n3'" in upgrade_problem(driver.catalog, 1, leave)

    def test_field_that_older_nodes_ignore_raises_what_is_needed(self) -> None:
        assert required_version(commands.ForgetNode(3)) == MEMBERS
        assert required_version(commands.ForgetNode(3, bars_unknown=True)) == GATED

    def test_field_that_older_nodes_ignore_is_named(self, driver: Any) -> None:
        knowing(driver, SESSIONS, SESSIONS, GATED)
        user = User("bob", b"s", b"h")
        assert upgrade_problem(driver.catalog, 1, commands.PutUser(user)) == ""
        ending = commands.PutUser(user, end_sessions=True)
        assert upgrade_problem(driver.catalog, 1, ending) == (
            "node 'n3' runs an older version: upgrade it before 'put_user' with 'end_sessions' is "
            "used (that needs catalog version 4, and it knows 3)"
        )
        assert stamped(driver.catalog, 1, commands.PutUser(user)).as_of == 0
        say(driver, 3, SESSIONS)
        assert stamped(driver.catalog, 1, commands.PutUser(user)).as_of == SESSIONS
        assert stamped(driver.catalog, 1, ending).as_of == SESSIONS

    @pytest.mark.parametrize(
        ("kind", "arguments"),
        [("x-local-random", {}), ("x-delayed-message", {"x-delayed-type": "x-local-random"})],
    )
    def test_exchange_type_that_older_nodes_cannot_route_waits_for_them(
        self, driver: Any, kind: str, arguments: dict[str, Any]
    ) -> None:
        wanted = commands.DeclareExchange(Exchange("/", "e", kind, arguments=arguments))
        knowing(driver, LOCAL_RANDOM, LOCAL_RANDOM, GATED)
        assert upgrade_problem(driver.catalog, 1, wanted) == (
            "node 'n3' runs an older version: upgrade it before exchange type 'x-local-random' is "
            f"used (that needs catalog version {LOCAL_RANDOM}, and it knows 3)"
        )
        say(driver, 3, LOCAL_RANDOM)
        assert upgrade_problem(driver.catalog, 1, wanted) == ""
        assert stamped(driver.catalog, 1, wanted).as_of == LOCAL_RANDOM
        other = commands.DeclareExchange(Exchange("/", "e", "direct"))
        assert required_version(other) == FIRST

    def test_command_is_proposed_as_of_what_all_know(self, driver: Any) -> None:
        move = commands.SetMembers("/", "q", 1, add=(3,))
        knowing(driver, GATED, GATED, 0)
        assert stamped(driver.catalog, 1, move) == move
        say(driver, 3, GATED)
        assert stamped(driver.catalog, 1, move).as_of == GATED
        plain = commands.DeclareVhost("v")
        assert stamped(driver.catalog, 1, plain) == plain
        assert b"version" not in commands.encode_command(plain)


class TestApplying:
    def test_unknown_command_stops_the_node_and_changes_nothing(self, driver: Any) -> None:
        before = driver.catalog.digest()
        data = encode_envelope(Request(1, 1, 90), msgspec.msgpack.encode({"do": "split_queue"}))
        with pytest.raises(CatalogVersionError, match=r"command 'split_queue'.*as new as its peer"):
            driver.catalog.apply(90, data)
        assert driver.catalog.digest() == before

    def test_known_command_of_a_later_version_stops_the_node(self, driver: Any) -> None:
        later = msgspec.structs.replace(commands.DeclareVhost("v"), version=CATALOG_VERSION + 1)
        with pytest.raises(CatalogVersionError, match=f"catalog version {CATALOG_VERSION + 1}"):
            driver.do(later)
        assert driver.catalog.vhost("v") is None

    def test_envelope_of_a_later_version_stops_the_node(self, driver: Any) -> None:
        data = encode_request(Request(1, 1, 90), commands.Barrier())
        with pytest.raises(CatalogVersionError, match="an entry of format 2"):
            driver.catalog.apply(90, b"\x02" + data[1:])

    def test_release_without_a_command_stops_and_founds_no_queue_elsewhere(
        self, driver: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A node that leaves `admit_node` out gives the next queue other founders than the rest."""
        queue = commands.DeclareQueue("/", "q", "quorum", replicas=3)
        for number in range(3):
            driver.queue(f"q{number}", "classic", preferred_node=3)
        log = list(driver.log)
        driver.do(commands.AdmitNode(N4))
        founders = driver.do(queue).value.founders
        assert 4 in founders
        older = [kind for kind in get_args(AnyCommand) if kind is not commands.AdmitNode]
        union: Any = older[0]
        for kind in older[1:]:
            union |= kind
        monkeypatch.setattr(commands, "_DECODER", msgspec.msgpack.Decoder(union))
        tags = {str(kind.__struct_config__.tag) for kind in older}
        monkeypatch.setattr(versions, "_TAGS", frozenset(tags))
        behind = Catalog()
        for index, data in enumerate(log, 1):
            behind.apply(index, data)
        with pytest.raises(CatalogVersionError, match="'admit_node'"):
            behind.apply(len(log) + 1, driver.log[len(log)])
        assert behind.queue("/", "q") is None


class TestTargets:
    def test_replica_does_not_move_to_an_older_queue_machine(self, driver: Any) -> None:
        for node, known in ((1, 4), (2, 4), (3, 3)):
            say(driver, node, GATED, known)
        queue = driver.queue("q", "quorum", replicas=2)
        assert queue.members == (1, 2)
        problem = target_problem(driver.catalog, queue, (3,))
        assert problem == (
            "queue 'q' in vhost '/' cannot move to node 'n3', which runs an older version: upgrade "
            "it first (queue machine 3, and the queue may be at 4)"
        )
        move = commands.SetMembers("/", "q", queue.group, add=(3,))
        assert isinstance(driver.do(stamped(driver.catalog, 1, move)), Refused)
        say(driver, 3, GATED, 4)
        assert isinstance(driver.do(stamped(driver.catalog, 1, move)), Ok)

    def test_move_of_before_such_checks_is_applied_as_it_was(self, driver: Any) -> None:
        for node, known in ((1, 4), (2, 4), (3, 3)):
            say(driver, node, 0, known)
        queue = driver.queue("q", "quorum", replicas=2)
        assert isinstance(driver.do(commands.SetMembers("/", "q", queue.group, add=(3,))), Ok)

    def test_replica_on_its_way_out_holds_the_level_down(self, driver: Any) -> None:
        for node, known in ((1, 4), (2, 3), (3, 3)):
            say(driver, node, GATED, known)
        queue = driver.queue("q", "quorum", replicas=2)
        driver.do(commands.SetMembers("/", "q", queue.group, remove=(2,)))
        queue = driver.catalog.queue("/", "q")
        assert queue.leaving == (2,)
        assert target_problem(driver.catalog, queue, (3,)) == ""

    def test_node_that_said_nothing_is_told_to_start_first(self, driver: Any) -> None:
        knowing(driver, GATED, GATED)
        queue = driver.queue("q", "quorum", replicas=2)
        assert "'n3', which has not said" in target_problem(driver.catalog, queue, (3,))
