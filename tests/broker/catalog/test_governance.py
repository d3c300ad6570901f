"""Vhosts, users, permissions and policies: commands, answers, stored state."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.event import (
    NodeAdded,
    ParameterChanged,
    PermissionChanged,
    PolicyChanged,
    UserChanged,
    UserLimitsChanged,
    VhostChanged,
    VhostLimitsChanged,
    VhostRemoved,
)
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.permission import CONFIGURE, READ, Rights
from headrace_broker.catalog.policy import applies, effective, queue_arguments
from headrace_broker.catalog.proposal import command_problem
from headrace_broker.catalog.request import Request, encode_envelope
from headrace_broker.catalog.result import Exists, NotFound, Ok, Refused
from headrace_broker.catalog.setting import QUEUE_SETTINGS
from headrace_broker.model.definition import (
    HASHED_SCRYPT,
    HASHED_SHA256,
    Node,
    Permission,
    Policy,
    Queue,
    User,
    Vhost,
)
from headrace_broker.model.limits import PATTERN_BYTES_MAX

ALL = (".*", ".*", ".*")
BOB = User("bob", b"salt", b"hash")
BOOT = commands.Bootstrap((), "/", BOB)


def propose(driver: Any, command: commands.AnyCommand) -> Any:
    """Do a command unless a node would not propose it."""
    problem = command_problem(command)
    return Refused(problem) if problem else driver.do(command)


def policy(definition: dict[str, Any] | None = None, **fields: Any) -> Policy:
    content = {"max-length": 5} if definition is None else definition
    return Policy(**{"vhost": "/", "name": "p", "pattern": "^a", "definition": content, **fields})


REFUSED_POLICIES = [
    (policy(name=""), "the policy's name has 0 bytes"),
    (policy(name="n" * 256), "the policy's name has 256 bytes"),
    (policy(apply_to="streams"), "apply-to: 'streams' is not one of 'all', 'queues'"),
    (policy(priority=1 << 31), "priority: 2147483648 is not within"),
    (policy(pattern="("), "pattern: not a regular expression: missing )"),
    (policy(pattern="a" * (PATTERN_BYTES_MAX + 1)), "pattern: the expression has 1025 bytes"),
    (policy({}), "definition: must not be empty"),
    (policy({"ha-mode": "all"}), "definition: 'ha-mode' is not recognised"),
    (policy({"max-length": "5"}), "definition: 'max-length' must be an integer from 0"),
    (policy({"max-length": True}), "not True"),
    (policy({"max-length": -1}), "not -1"),
    (policy({"expires": 0}), "definition: 'expires' must be an integer from 1"),
    (policy({"overflow": "drop-tail"}), "must be one of 'drop-head', 'reject-publish'"),
    (policy({"dead-letter-exchange": 1}), "must be a string of 0 to 255 bytes, not 1"),
    (policy({"max-priority": 5}), "'max-priority' is not recognised as a setting of policies"),
    (policy({"single-active-consumer": True}), "'single-active-consumer' is not recognised"),
    (policy({"last-value-key": "k"}), "'last-value-key' is not recognised"),
    (policy({"message-ttl": [[]]}), "not a list"),
    (policy({"delayed-retry-type": "all"}), "'delayed-retry-min' is required"),
    (
        policy({"high-watermark": 5, "low-watermark": 6}),
        "'low-watermark' (6) must not be larger than 'high-watermark' (5)",
    ),
    (
        policy({"delayed-retry-min": 9, "delayed-retry-max": 8}),
        "'delayed-retry-max' (8) must not be smaller",
    ),
    (
        policy({"dead-letter-exchange": "x"}, operator=True),
        "'dead-letter-exchange' is not recognised as a setting of operator policies",
    ),
    (policy({"queue-mode": "lazy"}, operator=True), "'queue-mode' is not recognised"),
    (policy({"alternate-exchange": "x"}, operator=True), "'alternate-exchange' is not recognised"),
]


@pytest.mark.parametrize(("wanted", "reason"), REFUSED_POLICIES)
def test_policy_that_breaks_a_rule_is_refused_with_the_field(
    driver: Any, wanted: Policy, reason: str
) -> None:
    answer = propose(driver, commands.PutPolicy(wanted))
    assert isinstance(answer, Refused)
    assert reason in answer.text
    assert driver.catalog.policies() == driver.catalog.policies(operator=True) == []


@pytest.mark.parametrize(
    "definition",
    [
        {"message-ttl": 0, "expires": 1, "max-length": 0, "max-length-bytes": 1 << 40},
        {"overflow": "reject-publish-dlx", "delivery-limit": -1},
        {"dead-letter-exchange": "", "dead-letter-routing-key": "k"},
        {"dead-letter-strategy": "at-least-once", "consumer-timeout": 0},
        {"delayed-retry-type": "failed", "delayed-retry-min": 5, "delayed-retry-max": 5},
        {"queue-mode": "lazy", "queue-version": 2, "queue-leader-locator": "least-leaders"},
        {"alternate-exchange": "x", "allow-immediate": True, "target-group-size": 5},
        {"message-deduplication": True, "deduplication-size": 9, "deduplication-ttl": 9},
        {"max-in-memory-length": 0, "max-in-memory-bytes": 0},
    ],
)
def test_what_rabbitmq_takes_in_a_policy_is_taken(driver: Any, definition: dict[str, Any]) -> None:
    wanted = policy(definition, pattern="^(?!amq\\.).*")
    assert propose(driver, commands.PutPolicy(wanted)) == Ok(wanted)


def test_policies_and_operator_policies_have_their_own_names(driver: Any) -> None:
    mine, theirs = policy(), policy(operator=True)
    assert driver.do(commands.PutPolicy(mine)) == Ok(mine)
    assert driver.events == [PolicyChanged("/", "p", False, mine)]
    assert driver.do(commands.PutPolicy(theirs)) == Ok(theirs)
    assert driver.catalog.policies("/") == [mine]
    assert driver.catalog.policies("/", operator=True) == [theirs]
    assert driver.do(commands.DeletePolicy("/", "p", operator=True)) == Ok(theirs)
    assert driver.events == [PolicyChanged("/", "p", True, None)]
    assert driver.catalog.policies("/") == [mine]
    assert driver.do(commands.DeletePolicy("/", "p", operator=True)) == NotFound(
        "operator policy 'p' in vhost '/'"
    )


def test_policy_for_a_vhost_that_is_not_there_is_refused(driver: Any) -> None:
    assert driver.do(commands.PutPolicy(policy(vhost="v"))) == NotFound("vhost 'v'")


def test_new_cluster_gives_its_first_user_everything(empty: Any, driver: Any) -> None:
    first = driver.log[0]
    command = commands.decode_command(first)
    assert isinstance(command, commands.Bootstrap)
    empty.do(msgspec.structs.replace(command, grant=True))
    assert empty.catalog.guarded
    assert empty.catalog.permissions() == [Permission("guest", "/", *ALL)]


def test_catalog_from_before_permissions_is_not_guarded(driver: Any) -> None:
    assert not driver.catalog.guarded
    assert driver.catalog.permissions() == []


def test_first_permission_writes_down_what_everybody_could_do(driver: Any) -> None:
    driver.do(commands.PutUser(BOB))
    driver.do(commands.DeclareVhost("v"))
    mine = Permission("bob", "/", "", "^x$", ".*")
    assert driver.do(commands.PutPermission(mine)) == Ok(mine)
    assert driver.catalog.guarded
    assert driver.catalog.permissions() == [
        Permission("guest", "/", *ALL),
        Permission("guest", "v", *ALL),
        mine,
        Permission("bob", "v", *ALL),
    ]
    assert driver.events[-1] == PermissionChanged("bob", "/", mine)


def test_taking_the_first_permission_away_leaves_the_others_theirs(driver: Any) -> None:
    driver.do(commands.PutUser(BOB))
    assert driver.do(commands.DeletePermission("bob", "/")) == Ok(Permission("bob", "/", *ALL))
    assert driver.catalog.permissions() == [Permission("guest", "/", *ALL)]
    assert driver.do(commands.DeletePermission("bob", "/")) == Ok(None)
    assert driver.do(commands.DeletePermission("guest", "/")) == Ok(Permission("guest", "/", *ALL))
    assert driver.catalog.guarded


@pytest.mark.parametrize(
    ("permission", "answer"),
    [
        (Permission("eve", "/", *ALL), NotFound("user 'eve'")),
        (Permission("guest", "v", *ALL), NotFound("vhost 'v'")),
        (
            Permission("guest", "/", "[", "", ""),
            Refused(
                "configure: not a regular expression: unterminated character set at position 0"
            ),
        ),
        (
            Permission("guest", "/", "", "*", ""),
            Refused("write: not a regular expression: nothing to repeat at position 0"),
        ),
        (
            Permission("guest", "/", "", "", "a" * 1025),
            Refused("read: the expression has 1025 bytes, more than 1024"),
        ),
    ],
)
def test_permission_that_breaks_a_rule_is_refused(
    driver: Any, permission: Permission, answer: Any
) -> None:
    assert propose(driver, commands.PutPermission(permission)) == answer
    assert not driver.catalog.guarded


def test_creator_of_a_vhost_may_do_everything_there(empty: Any) -> None:
    empty.bootstrap()
    empty.do(commands.PutUser(BOB))
    empty.do(commands.PutPermission(Permission("bob", "/", "", "", "")))
    vhost = Vhost("v", default_queue_type="quorum", description="for tests", tags=("a", "b"))
    assert empty.do(commands.PutVhost(vhost, "bob")) == Ok(vhost)
    assert empty.catalog.permission("bob", "v") == Permission("bob", "v", *ALL)
    assert empty.catalog.exchange("v", "amq.topic") is not None
    assert empty.do(commands.PutVhost(vhost, "guest")) == Exists(vhost)
    assert empty.catalog.permission("guest", "v") is None


def test_vhost_properties_change_in_place(driver: Any) -> None:
    changed = Vhost("/", default_queue_type="classic")
    assert driver.do(commands.PutVhost(changed)) == Ok(changed)
    assert driver.events == [VhostChanged(changed)]
    assert driver.catalog.vhost("/") == changed
    answer = propose(driver, commands.PutVhost(Vhost("/", default_queue_type="stream")))
    assert answer == Refused("default_queue_type: 'stream' is not 'quorum' or 'classic'")


def test_vhost_limits_are_set_removed_and_replaced(driver: Any) -> None:
    limit = commands.SetVhostLimits
    assert driver.do(limit("/", {"max-queues": 3})) == Ok({"max-queues": 3})
    assert driver.events == [VhostLimitsChanged("/", {"max-queues": 3})]
    both = {"default-queue-max-length": 0, "max-queues": 3}
    assert driver.do(limit("/", {"default-queue-max-length": 0})) == Ok(both)
    assert driver.do(limit("/", {"max-queues": -1})) == Ok({"default-queue-max-length": 0})
    assert driver.do(limit("/", {"max-queues": 7}, replace=True)) == Ok({"max-queues": 7})
    assert driver.do(limit("/", {}, replace=True)) == Ok({})
    assert driver.events == [VhostLimitsChanged("/", {})]
    assert driver.do(limit("v", {})) == NotFound("vhost 'v'")
    answer = propose(driver, limit("/", {"max-channels": 1}))
    assert isinstance(answer, Refused)
    assert (
        "limit 'max-channels' is not recognised; limits are max-connections, max-queues"
        in answer.text
    )


def test_user_limits_are_set_and_go_with_the_user(driver: Any) -> None:
    driver.do(commands.PutUser(BOB))
    limits = {"publish-rate-messages": 2, "publish-rate-bytes": 1 << 20}
    assert driver.do(commands.SetUserLimits("bob", limits)) == Ok(limits)
    driver.do(commands.PutUser(User("bob", b"other", b"password")))
    assert driver.catalog.user_limits("bob") == limits
    driver.do(commands.DeleteUser("bob"))
    assert driver.events == [UserLimitsChanged("bob", {}), UserChanged("bob", None)]
    driver.do(commands.PutUser(BOB))
    assert driver.catalog.user_limits("bob") == {}
    assert driver.do(commands.SetUserLimits("eve", {})) == NotFound("user 'eve'")
    answer = propose(driver, commands.SetUserLimits("bob", {"max-queues": 1}))
    assert isinstance(answer, Refused)


def test_deleted_vhost_takes_what_was_said_about_it_along(driver: Any) -> None:
    driver.do(commands.PutVhost(Vhost("v")))
    driver.do(commands.PutPolicy(policy(vhost="v")))
    driver.do(commands.PutPolicy(policy(vhost="v", operator=True)))
    driver.do(commands.PutPermission(Permission("guest", "v", "a", "b", "c")))
    driver.do(commands.SetVhostLimits("v", {"max-queues": 3}))
    driver.do(commands.DeleteVhost("v"))
    assert driver.events[-5:] == [
        PolicyChanged("v", "p", False, None),
        PolicyChanged("v", "p", True, None),
        PermissionChanged("guest", "v", None),
        VhostLimitsChanged("v", {}),
        VhostRemoved(Vhost("v")),
    ]
    driver.do(commands.PutVhost(Vhost("v")))
    assert driver.catalog.permission("guest", "v") is None
    assert driver.catalog.policies("v") == []


def test_queue_beyond_the_vhosts_limit_is_refused_and_known_ones_are_not(driver: Any) -> None:
    queue = driver.queue("a")
    driver.do(commands.SetVhostLimits("/", {"max-queues": 1}))
    assert driver.do(commands.DeclareQueue("/", "b", "classic")) == Refused(
        "cannot declare queue 'b': queue limit in vhost '/' (1) is reached"
    )
    assert driver.do(commands.DeclareQueue("/", "a", "classic")) == Exists(queue)
    driver.do(commands.DeleteQueue("/", "a"))
    driver.queue("b")
    driver.do(commands.SetVhostLimits("/", {"max-queues": 0}))
    assert isinstance(driver.do(commands.DeclareQueue("/", "c", "classic")), Refused)


def test_snapshot_without_the_newer_tables_is_one_that_older_nodes_read(driver: Any) -> None:
    driver.queue("a")
    old = msgspec.msgpack.decode(driver.catalog.snapshot())
    assert old["version"] == 1
    assert set(old) == {
        "version",
        "applied_index",
        "bootstrapped",
        "next_group",
        "nodes",
        "vhosts",
        "users",
        "exchanges",
        "queues",
        "bindings",
        "requests",
    }
    assert old["vhosts"] == [{"name": "/"}]
    driver.do(commands.PutPolicy(policy()))
    assert msgspec.msgpack.decode(driver.catalog.snapshot())["version"] == 2


def test_snapshot_keeps_everything(driver: Any) -> None:
    driver.do(commands.PutUser(BOB))
    driver.do(commands.PutVhost(Vhost("v", "classic", "text", ("t",)), "bob"))
    driver.do(commands.PutPermission(Permission("bob", "v", "a", "b", "c")))
    driver.do(commands.PutPolicy(policy({"message-ttl": 5}, priority=-3, apply_to="queues")))
    driver.do(commands.PutPolicy(policy(operator=True)))
    driver.do(commands.SetVhostLimits("v", {"max-queues": 3}))
    driver.do(commands.SetUserLimits("bob", {"publish-rate-messages": 3}))
    copy = Catalog.restore(driver.catalog.snapshot())
    assert copy.digest() == driver.catalog.digest()
    assert copy.guarded
    assert copy.vhost("v") == Vhost("v", "classic", "text", ("t",))
    assert copy.permissions() == driver.catalog.permissions()
    assert copy.policies() == driver.catalog.policies()
    assert copy.policies(operator=True) == driver.catalog.policies(operator=True)
    assert copy.vhost_limits("v") == {"max-queues": 3}
    assert copy.user_limits("bob") == {"publish-rate-messages": 3}


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text()
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(["max-length", "overflow", "delayed-retry-min", "delayed-retry-max", "x"])


@given(
    pattern=st.text(max_size=30),
    definition=st.dictionaries(KEYS, VALUES, max_size=3),
    priority=st.integers(-(2**40), 2**40),
    apply_to=st.sampled_from(["all", "queues", "streams", ""]),
    operator=st.booleans(),
)
def test_any_policy_has_an_answer_and_all_replicas_give_it(
    pattern: str, definition: dict[str, Any], priority: int, apply_to: str, operator: bool
) -> None:
    wanted = Policy("/", "p", pattern, definition, priority, apply_to, operator)
    answers = []
    digests = []
    for _ in range(2):
        catalog = Catalog()
        catalog.apply(1, commands.encode_request(Request(1, 1, 1), BOOT))
        entry = commands.encode_request(Request(1, 1, 2), commands.PutPolicy(wanted))
        answers.append(catalog.apply(2, entry)[0])
        digests.append(catalog.digest())
    assert answers[0] == answers[1]
    assert digests[0] == digests[1]
    assert answers[0] == Ok(wanted)
    queue = Queue("/", "q", "quorum", 1, (1,))
    counting = wanted if applies(wanted, queue) else None
    told = effective(queue, None if operator else counting, counting if operator else None, {})
    assert all(QUEUE_SETTINGS[name].check.allows(value) for name, value in told.items())


def test_what_another_version_took_is_kept_and_means_nothing_here(driver: Any) -> None:
    later = policy({"later": 1, "max-length": "5"}, pattern="(?later)", apply_to="streams")
    assert driver.do(commands.PutPolicy(later)) == Ok(later)
    assert driver.catalog.policies() == [later]
    queue = Queue("/", "a", "quorum", 1, (1,))
    assert queue_arguments(driver.catalog, queue) == {}
    anywhere = msgspec.structs.replace(later, pattern="", apply_to="all")
    driver.do(commands.PutPolicy(anywhere))
    assert queue_arguments(driver.catalog, queue) == {}
    driver.do(commands.PutPermission(Permission("guest", "/", "(?later)", "(?later)", ".*")))
    assert not Rights(driver.catalog).may("guest", "/", CONFIGURE, "a")
    assert Rights(driver.catalog).may("guest", "/", READ, "a")
    assert driver.do(commands.SetVhostLimits("/", {"later": 1})) == Ok({"later": 1})
    assert driver.do(commands.PutVhost(Vhost("/", default_queue_type="stream"))) == Ok(
        Vhost("/", default_queue_type="stream")
    )
    assert Catalog.restore(driver.catalog.snapshot()).digest() == driver.catalog.digest()


def test_node_says_what_machine_it_runs_and_keeps_that_under_another_address(driver: Any) -> None:
    node = driver.catalog.node(2)
    assert node.machine_version == 1
    newer = msgspec.structs.replace(node, machine_version=2)
    assert driver.do(commands.AnnounceNode(2, 2)) == Ok(newer)
    assert driver.events == [NodeAdded(newer)]
    assert driver.do(commands.AnnounceNode(2, 2)) == Exists(newer)
    moved = Node(2, "n2", "elsewhere:1")
    assert driver.do(commands.DeclareNodes((moved,))) == Ok()
    assert driver.catalog.node(2) == msgspec.structs.replace(moved, machine_version=2)
    assert driver.do(commands.DeclareNodes((moved,))) == Exists()
    assert driver.do(commands.AnnounceNode(9, 2)) == NotFound("node 9")
    assert isinstance(driver.do(commands.AnnounceNode(2, 0)), Refused)


def test_parameters_are_set_changed_and_taken_back(driver: Any) -> None:
    driver.do(BOOT)
    name = "memory-high-watermark"
    assert driver.do(commands.SetParameter(name, "0.4")) == Ok("0.4")
    assert driver.events == [ParameterChanged(name, "0.4")]
    assert driver.do(commands.SetParameter(name, "0.4")) == Ok("0.4")
    assert driver.events == []
    driver.do(commands.SetParameter(name, 5000))
    driver.do(commands.SetParameter("queue-commands", 8))
    assert driver.catalog.parameters() == {name: 5000, "queue-commands": 8}
    assert driver.do(commands.SetParameter(name)) == Ok(None)
    assert driver.events == [ParameterChanged(name, None)]
    assert driver.do(commands.SetParameter(name)) == Ok(None)
    assert driver.events == []
    assert driver.catalog.parameters() == {"queue-commands": 8}
    assert isinstance(driver.do(commands.SetParameter("n" * 256, 1)), Refused)


def test_parameters_are_judged_before_they_are_proposed_and_not_when_applied(driver: Any) -> None:
    driver.do(BOOT)
    for name, value in (("warp", 9), ("queue-commands", 0), ("queue-commands", "0.5")):
        command = commands.SetParameter(name, value)
        assert name in propose(driver, command).text
        assert driver.do(command) == Ok(value), "another version may know better"
    assert propose(driver, commands.SetParameter("warp")) == Ok(None)


def test_parameters_are_kept_in_snapshots_that_older_nodes_refuse(driver: Any) -> None:
    driver.do(BOOT)
    driver.do(commands.SetParameter("queue-commands", 8))
    driver.do(commands.SetParameter("memory-high-watermark", "0.4"))
    data = driver.catalog.snapshot()
    assert msgspec.msgpack.decode(data)["version"] == 3
    again = Catalog.restore(data)
    assert again.snapshot() == data
    assert again.parameters() == driver.catalog.parameters()
    for name in driver.catalog.parameters():
        driver.do(commands.SetParameter(name))
    behind = Catalog.restore(data)
    events = behind.load(driver.catalog.snapshot())
    assert ParameterChanged("queue-commands", None) in events
    assert ParameterChanged("memory-high-watermark", None) in events
    assert set(driver.catalog.load(data)) == {
        ParameterChanged("queue-commands", 8),
        ParameterChanged("memory-high-watermark", "0.4"),
    }


class TestHashes:
    def test_a_hash_gives_way_to_another_one_of_the_same_password(self, driver: Any) -> None:
        user = User("eve", b"s", b"old", ("monitoring",), True, HASHED_SHA256)
        driver.do(commands.PutUser(user))
        kept = User("eve", b"salt", b"new", ("monitoring",), True)
        command = commands.RehashUser("eve", b"old", b"salt", b"new")
        assert driver.do(command) == Ok(kept)
        assert driver.events == [UserChanged("eve", kept)]
        assert driver.catalog.user("eve") == kept

    def test_a_password_that_was_changed_meanwhile_stays(self, driver: Any) -> None:
        user = User("eve", b"s", b"changed")
        driver.do(commands.PutUser(user))
        command = commands.RehashUser("eve", b"old", b"salt", b"new")
        assert driver.do(command) == Exists(user)
        assert driver.catalog.user("eve") == user

    def test_a_user_that_is_gone_has_none(self, driver: Any) -> None:
        command = commands.RehashUser("eve", b"old", b"salt", b"new")
        assert driver.do(command) == NotFound("user 'eve'")

    def test_logs_from_before_there_were_other_hashes_are_read(self, driver: Any) -> None:
        named = {"name": "eve", "salt": b"s", "password_hash": b"h", "tags": []}
        old = msgspec.msgpack.encode({"do": "put_user", "user": {**named, "loopback_only": True}})
        command = commands.decode_command(encode_envelope(Request(1, 1, 1), old))
        assert command == commands.PutUser(User("eve", b"s", b"h", (), True, HASHED_SCRYPT))
