"""Definitions from a file: tried on a copy of the catalog first, and then carried out.

What is wrong is found before anything is changed. Queues, exchanges and bindings that are there
stay as they are; users, permissions, parameters and policies become what the file says. Nothing is
deleted, so that an import that was cut short is done again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from headrace_broker.catalog.argument import ArgumentError, asked_queue, unknown_queue_arguments
from headrace_broker.catalog.command import (
    AnyCommand,
    Bind,
    DeclareExchange,
    DeclareQueue,
    PutPermission,
    PutPolicy,
    PutTopicPermission,
    PutUser,
    PutVhost,
    SetUserLimits,
)
from headrace_broker.catalog.exchange_argument import arguments_problem, unknown_exchange_arguments
from headrace_broker.catalog.proposal import without_administrator
from headrace_broker.catalog.rehearsal import Rehearsal
from headrace_broker.catalog.result import Exists, Inequivalent, Locked, Ok, Result
from headrace_broker.catalog.view import CatalogView
from headrace_broker.management.definitions.file import (
    DefinitionFile,
    QueueDefinition,
    UserDefinition,
    VhostDefinition,
    VhostFile,
)
from headrace_broker.management.http.answer import ApiError, bad_request, check
from headrace_broker.management.resources.parameters import global_command, parameter_command
from headrace_broker.management.resources.users import given_hash
from headrace_broker.management.resources.vhosts import DEFAULT_QUEUE_TYPE
from headrace_broker.model.definition import (
    Binding,
    Exchange,
    Permission,
    Policy,
    TopicPermission,
    Vhost,
)
from headrace_broker.model.limits import IMPORTS_AT_ONCE, LISTING_TURN_ROWS
from headrace_broker.runtime.administration.administration import NodeAdministration
from headrace_broker.runtime.routing.unknown_arguments import UNKNOWN_ARGUMENTS
from headrace_broker.runtime.security.password import new_user

# What other brokers' files hold about themselves.
_THEIRS: Final = frozenset(
    {"internal_cluster_id", "cluster_name", "cluster_tags", "imported_definition_hash_value"}
)


class Step(NamedTuple):
    """A command, and where in the file it is from."""

    where: str
    stage: int  # steps of one stage do not need each other
    command: AnyCommand
    declares: bool = False  # something with this name that is there already may stay as it is


def cluster_steps(file: DefinitionFile, view: CatalogView) -> Iterator[Step]:
    """Return what a file of a cluster comes to, in order; ApiError 400 names what cannot be."""
    for at, vhost in enumerate(file.vhosts):
        yield Step(f"vhosts[{at}] '{vhost.name}'", 0, PutVhost(_vhost(vhost)))
    users: list[Step] = []
    for at, user in enumerate(file.users):
        where = f"users[{at}] '{user.name}'"
        command = _placed(where, _user, user, view)
        # The last administrator keeps its tag, so those who get it come first.
        users.append(Step(where, 0 if without_administrator(command) else -1, command))
    yield from sorted(users, key=lambda step: step.stage)
    for step, user in zip(users, file.users, strict=True):
        yield Step(step.where, 1, SetUserLimits(user.name, user.limits, replace=True))
    for at, each in enumerate(file.permissions):
        permission = Permission(each.user, each.vhost, each.configure, each.write, each.read)
        where = f"permissions[{at}] of '{each.user}' in '{each.vhost}'"
        yield Step(where, 2, PutPermission(permission))  # not before what narrows it
    for at, told in enumerate(file.topic_permissions):
        fields = (told.user, told.vhost, told.exchange, told.write, told.read)
        where = f"topic_permissions[{at}] of '{told.user}' in '{told.vhost}'"
        yield Step(where, 1, PutTopicPermission(TopicPermission(*fields)))
    for at, parameter in enumerate(file.global_parameters):
        if parameter.name not in _THEIRS:
            where = f"global_parameters[{at}] '{parameter.name}'"
            command = _placed(where, global_command, parameter.name, parameter.value)
            yield Step(where, 1, command)
    yield from vhost_steps(file, "")


def vhost_steps(file: VhostFile, vhost: str) -> Iterator[Step]:
    """Return what a vhost's contents come to ("" for the vhost of each); ApiError 400 likewise."""
    for at, parameter in enumerate(file.parameters):
        where = f"parameters[{at}] '{parameter.name}'"
        place = vhost or parameter.vhost
        named = (parameter.component, place, parameter.name, parameter.value)
        yield Step(where, 1, _placed(where, parameter_command, *named))
    for at, policy in enumerate(file.policies):
        told = (policy.pattern, policy.definition, policy.priority, policy.apply_to)
        put = PutPolicy(Policy(vhost or policy.vhost, policy.name, *told))
        yield Step(f"policies[{at}] '{policy.name}'", 1, put)
    for at, each in enumerate(file.exchanges):
        if not each.name:
            continue  # the default exchange is there
        exchange = Exchange(
            vhost or each.vhost,
            each.name,
            each.type,
            each.durable,
            each.auto_delete,
            each.internal,
            each.arguments,
        )
        where = f"exchanges[{at}] '{each.name}'"
        problem = arguments_problem(exchange)
        if problem:
            raise bad_request(f"{where}: {problem}")
        yield Step(where, 2, DeclareExchange(exchange), declares=True)
    for at, queue in enumerate(file.queues):
        yield Step(f"queues[{at}] '{queue.name}'", 2, _queue(vhost, queue), declares=True)
    for at, one in enumerate(file.bindings):
        if not one.source:
            continue  # the default exchange has its bindings
        place, ends = vhost or one.vhost, (one.source, one.destination_type, one.destination)
        binding = Binding(place, *ends, one.routing_key, one.arguments)
        where = f"bindings[{at}] from '{one.source}' to '{one.destination}'"
        yield Step(where, 3, Bind(binding), declares=True)


def _placed(where: str, make: Any, *arguments: Any) -> AnyCommand:
    """Return a command; what is refused names its place in the file."""
    try:
        command: AnyCommand = make(*arguments)
    except ApiError as error:
        raise ApiError(error.status, error.error, f"{where}: {error.reason}") from None
    return command


def _vhost(given: VhostDefinition) -> Vhost:
    more = given.metadata
    kind = given.default_queue_type or more.default_queue_type or ""
    return Vhost(
        given.name,
        "" if kind == DEFAULT_QUEUE_TYPE else kind,
        more.description if given.description is None else given.description,
        tuple(more.tags if given.tags is None else given.tags),
    )


def _user(given: UserDefinition, view: CatalogView) -> AnyCommand:
    current = view.user(given.name)
    words = given.tags.split(",") if isinstance(given.tags, str) else given.tags
    tags = tuple(word.strip() for word in words if word.strip())
    loopback_only = given.loopback_only
    if loopback_only is None:
        loopback_only = current is not None and current.loopback_only
    if given.password is not None and given.password_hash:
        raise bad_request("password_hash: is not allowed beside password")
    if given.password is not None:
        if not given.password:
            raise bad_request("password: must not be empty")
        return PutUser(new_user(given.name, given.password, tags, loopback_only))
    proof = given_hash(given.password_hash, given.hashing_algorithm)
    return PutUser(proof.user(given.name, tags, loopback_only))


def _queue(vhost: str, given: QueueDefinition) -> DeclareQueue:
    """Return the declaration of a queue; its kind is filled in once its vhost is known."""
    return DeclareQueue(
        vhost or given.vhost,
        given.name,
        "",
        durable=given.durable,
        auto_delete=given.auto_delete,
        arguments=given.arguments,
    )


def rehearse(snapshot: bytes, steps: Iterable[Step]) -> list[Step]:
    """Try steps on a copy of the catalog, in a thread, and return those that change something.

    Raises ApiError 400: one is refused; the reason says where it stands.
    """
    copy = Rehearsal(snapshot)
    found: list[Step] = []
    for step in steps:
        if isinstance(step.command, DeclareQueue):
            step = step._replace(command=_of_a_kind(copy.catalog, step))
        result = copy.try_one(step.command)
        if isinstance(result, Ok):
            found.append(step)
        elif not _stays(step, result):
            raise bad_request(f"{step.where}: {result.text}")
    return found


def _stays(step: Step, result: Result) -> bool:
    return isinstance(result, Exists) or (
        step.declares and isinstance(result, Inequivalent | Locked)
    )


def _of_a_kind(view: CatalogView, step: Step) -> DeclareQueue:
    """Return the declaration with the kind and the replicas that it asks for."""
    command = step.command
    assert isinstance(command, DeclareQueue)
    known = view.vhost(command.vhost)
    current = view.queue(command.vhost, command.name)
    default = known.default_queue_type if known is not None else ""
    try:
        kind, replicas = asked_queue(
            command.vhost,
            command.name,
            command.durable,
            False,
            command.auto_delete,
            command.arguments,
            default if current is None else current.kind,
        )
    except ArgumentError as error:
        raise bad_request(f"{step.where}: {error}") from None
    return msgspec.structs.replace(command, kind=kind, replicas=replicas)


async def apply_steps(node: NodeAdministration, steps: list[Step]) -> None:
    """Run steps, one stage after the other, many of a stage at once.

    Raises ApiError: one is refused by now; AmqpError: the catalog has no quorum. Steps of earlier
    stages, and some of its own, are done.
    """
    slots = asyncio.Semaphore(IMPORTS_AT_ONCE)

    async def do(step: Step) -> None:
        async with slots:
            command = step.command
            if isinstance(command, DeclareQueue):
                command = msgspec.structs.replace(command, member_ids=node.renewed_members())
            result = await node.submit(command)
        if not _stays(step, result):
            check(result)
        _tell_unknown(command)

    for stage in sorted({step.stage for step in steps}):
        chosen = [step for step in steps if step.stage == stage]
        for start in range(0, len(chosen), LISTING_TURN_ROWS):
            piece = chosen[start : start + LISTING_TURN_ROWS]
            await asyncio.gather(*(do(step) for step in piece))


def _tell_unknown(command: AnyCommand) -> None:
    if isinstance(command, DeclareQueue):
        where = f"queue '{command.name}' in vhost '{command.vhost}'"
        UNKNOWN_ARGUMENTS.warn("queue", where, unknown_queue_arguments(command.arguments))
    elif isinstance(command, DeclareExchange):
        exchange = command.exchange
        where = f"exchange '{exchange.name}' in vhost '{exchange.vhost}'"
        unknown = unknown_exchange_arguments(exchange.arguments)
        UNKNOWN_ARGUMENTS.warn("exchange", where, unknown)
