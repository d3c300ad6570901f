"""Lines of the audit log."""

from __future__ import annotations

import typing

import msgspec
import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.result import Exists, NotFound, Ok, Refused
from headrace_broker.model.definition import (
    Binding,
    Exchange,
    Node,
    Permission,
    Policy,
    User,
    Vhost,
)
from headrace_broker.model.limits import AUDIT_VALUE_CHARACTERS_MAX
from headrace_broker.runtime.security import audit, audit_command
from headrace_broker.runtime.security.audit import ACTOR, Actor

ANN = Actor("ann", "192.0.2.7:5000", "http", "4f")
PREFIX = "user=ann peer=192.0.2.7:5000 protocol=http request=4f"
KINDS = typing.get_args(commands.AnyCommand)


@pytest.fixture
def lines(caplog):
    """Lines as they are written, by ann."""
    token = ACTOR.set(ANN)
    with caplog.at_level("INFO", "headrace.audit"):
        yield lambda: [record.getMessage() for record in caplog.records]
    ACTOR.reset(token)


def test_a_line_says_who_where_how_what_and_what_became_of_it(lines):
    audit.record("purge_queue", "orders", vhost="/", messages=3)
    assert lines() == [f"{PREFIX} action=purge_queue target=orders outcome=done vhost=/ messages=3"]


def test_values_cannot_break_out_of_their_place(lines):
    audit.record("put_user", 'a b="c"\n\\ user=root', "no user 'x y'", note="ü=\x1b[0m")
    [line] = lines()
    assert "\n" not in line
    assert "\x1b" not in line
    assert line == (
        rf'{PREFIX} action=put_user target="a b=\"c\"\n\\ user=root" '
        rf"""outcome="no user 'x y'" note="\xfc=\x1b[0m" """.rstrip()
    )


def test_long_values_are_cut(lines):
    audit.record("x", "y" * 10_000)
    [line] = lines()
    assert "y" * AUDIT_VALUE_CHARACTERS_MAX + "..." in line
    assert len(line) < AUDIT_VALUE_CHARACTERS_MAX + 200


def test_fields_come_along_for_structured_logs(lines, caplog):
    audit.record("x", "y", messages=3)
    assert caplog.records[0].fields["messages"] == 3
    assert caplog.records[0].fields["user"] == "ann"


def test_what_the_broker_does_by_itself_is_not_recorded(caplog):
    with caplog.at_level("INFO", "headrace.audit"):
        audit.record("x", "y")
    assert not caplog.records


def test_every_command_is_recorded_or_known_not_to_be():
    assert audit_command.UNRECORDED.isdisjoint(audit_command._DESCRIBED)
    assert audit_command.UNRECORDED | set(audit_command._DESCRIBED) == set(KINDS)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            commands.PutUser(User("bob", b"salt!", b"hash!", ("administrator", "x"))),
            "action=put_user target=bob outcome=done tags=administrator,x password=given "
            "end_sessions=False",
        ),
        (
            commands.PutUser(User("bob", b"", b""), end_sessions=True),
            "action=put_user target=bob outcome=done password=none end_sessions=True",
        ),
        (commands.DeleteUser("bob"), "action=delete_user target=bob outcome=done"),
        (
            commands.PutPermission(Permission("bob", "/", ".*", "^a", "")),
            "action=put_permission target=bob outcome=done vhost=/ configure=.* write=^a",
        ),
        (
            commands.DeletePermission("bob", "/"),
            "action=delete_permission target=bob outcome=done vhost=/",
        ),
        (commands.DeclareVhost("v"), "action=declare_vhost target=v outcome=done"),
        (commands.PutVhost(Vhost("v")), "action=put_vhost target=v outcome=done"),
        (commands.DeleteVhost("v"), "action=delete_vhost target=v outcome=done"),
        (
            commands.PutPolicy(Policy("/", "p", "^a", {"max-length": 5})),
            "action=put_policy target=p outcome=done vhost=/ operator=False pattern=^a "
            r'apply_to=all priority=0 definition="{\"max-length\":5}"',
        ),
        (
            commands.SetMembers("/", "q", 7, (4,), (1, 2)),
            "action=set_members target=q outcome=done vhost=/ add=4 remove=1,2",
        ),
        (
            commands.AdmitNode(Node(4, "n4", "h:4")),
            "action=admit_node target=4 outcome=done name=n4 address=h:4",
        ),
        (commands.ForgetNode(4), "action=forget_node target=4 outcome=done"),
        (
            commands.SetMaintenance(2, on=True),
            "action=set_maintenance target=2 outcome=done on=True",
        ),
        (
            commands.DeletePolicy("/", "p"),
            "action=delete_policy target=p outcome=done vhost=/ operator=False",
        ),
        (
            commands.SetVhostLimits("/", {"max-queues": 5}),
            r'action=set_vhost_limits target=/ outcome=done limits="{\"max-queues\":5}"',
        ),
        (
            commands.SetUserLimits("bob", {"max-channels": 5}),
            r'action=set_user_limits target=bob outcome=done limits="{\"max-channels\":5}"',
        ),
        (
            commands.SetParameter("credit", 5),
            "action=set_parameter target=credit outcome=done value=5",
        ),
        (
            commands.DeclareExchange(Exchange("/", "x", "topic")),
            "action=declare_exchange target=x outcome=done vhost=/ type=topic",
        ),
        (commands.DeleteExchange("/", "x"), "action=delete_exchange target=x outcome=done vhost=/"),
        (
            commands.DeclareQueue("/", "q", "quorum", arguments={"a": b"\xff"}),
            "action=declare_queue target=q outcome=done vhost=/ type=quorum exclusive=False "
            r'arguments="{\"a\":\"/w==\"}"',
        ),
        (commands.DeleteQueue("/", "q"), "action=delete_queue target=q outcome=done vhost=/"),
        (
            commands.Bind(Binding("/", "x", "queue", "q", "k")),
            "action=bind target=q outcome=done vhost=/ source=x destination_type=queue "
            "routing_key=k",
        ),
        (
            commands.Unbind(Binding("/", "x", "queue", "q", "k")),
            "action=unbind target=q outcome=done vhost=/ source=x destination_type=queue "
            "routing_key=k",
        ),
    ],
)
def test_a_command_is_told_without_what_is_secret(lines, command, expected):
    audit_command.record(command, Ok())
    [line] = lines()
    assert line == f"{PREFIX} {expected}"
    assert "salt!" not in line
    assert "hash!" not in line


def test_outcomes(lines):
    command = commands.DeleteUser("bob")
    audit_command.record(command, NotFound("user 'bob'"))
    audit_command.record(command, Refused("no"))
    audit_command.record(command, Exists())  # it changed nothing
    audit_command.record_lost(command)
    audit_command.record(commands.Barrier(), Ok())
    assert [line.partition("outcome=")[2] for line in lines()] == [
        "\"no user 'bob'\"",
        "no",
        '"not answered"',
    ]


def test_every_field_of_a_user_is_looked_at_when_one_is_added():
    """A new field may be a secret: then it must not be shown; otherwise it may."""
    names = {field.name for field in msgspec.structs.fields(User)}
    assert names == {"name", "salt", "password_hash", "tags", "loopback_only", "hashing"}
