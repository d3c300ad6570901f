"""Answers of queues to lease groups, as messages and as errors of calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import grpc

from headrace_broker.core.queue.state.lease_effect import (
    EXPIRED,
    HELD,
    LEASE_FENCED,
    LEASE_GONE,
    LEASE_GROUPS_FULL,
    LEASE_IN_USE,
    LEASE_OK,
    LEASE_OUT_OF_ORDER,
    LEASE_SETTLED,
    LEASE_UNKNOWN_GROUP,
    LEASES_FULL,
    RELEASED,
    GroupInfo,
    LeaseAnswer,
    LeaseInfo,
)
from headrace_broker.gateways.grpc.server.errors import RETRY_MS, CallError, upgrade_pending
from headrace_broker.model.limits import LEASE_GROUPS_MAX, LEASES_MAX
from headrace_broker.runtime.lease.group_commands import TooEarlyError
from headrace_broker.runtime.rpc.leader import LeaderUnavailableError, QueueGoneError
from headrace_protos.broker.v1 import lease_pb2 as pb
from headrace_protos.broker.v1.message_pb2 import Range

_ROWS_SHOWN: Final = 16  # rows of message ids in an error's metadata, which travels as a header
_STATES: Final = {
    HELD: pb.LeaseState.HELD,
    EXPIRED: pb.LeaseState.EXPIRED,
    RELEASED: pb.LeaseState.RELEASED,
}
_CODE: Final = grpc.StatusCode
_REFUSALS: Final = {
    LEASE_FENCED: (_CODE.ABORTED, "FENCED", "somebody else has opened the group since"),
    LEASE_UNKNOWN_GROUP: (_CODE.NOT_FOUND, "UNKNOWN_GROUP", "it is not open"),
    LEASE_OUT_OF_ORDER: (
        _CODE.FAILED_PRECONDITION,
        "OUT_OF_ORDER",
        "the number is beyond the group's next lease",
    ),
    LEASE_GONE: (
        _CODE.FAILED_PRECONDITION,
        "EXPIRED",
        "the lease is gone: its messages went back to the queue",
    ),
    LEASE_SETTLED: (_CODE.FAILED_PRECONDITION, "SETTLED", "the lease is settled"),
    LEASE_GROUPS_FULL: (
        _CODE.RESOURCE_EXHAUSTED,
        "TOO_MANY_GROUPS",
        f"the queue has {LEASE_GROUPS_MAX} groups, which is the maximum: close one",
    ),
    LEASES_FULL: (
        _CODE.RESOURCE_EXHAUSTED,
        "TOO_MANY_LEASES",
        f"{LEASES_MAX} leases are not settled, or the queue has leased as much as it may",
    ),
    LEASE_IN_USE: (
        _CODE.FAILED_PRECONDITION,
        "IN_USE",
        "the queue is another's: an exclusive or single active consumer's, or group's",
    ),
}


def check_status(
    status: int, name: str, group: GroupInfo | None = None, gone: list[LeaseInfo] | None = None
) -> None:
    """Refuse any status but LEASE_OK.

    Args:
        status: one of the LEASE constants.
        name: of the group.
        group: as it is.
        gone: leases that went back.

    Raises:
        CallError: saying why.
    """
    if status == LEASE_OK:
        return
    code, reason, text = _REFUSALS[status]
    metadata = {}
    if group is not None:
        metadata = {"epoch": str(group.epoch), "next_lease": str(group.next_number)}
    for lease in gone or ():
        metadata["messages"] = str(lease.count)
        metadata["message_ids"] = _shown(lease.rows)
    retry_ms = RETRY_MS if code is _CODE.RESOURCE_EXHAUSTED else 0
    raise CallError(code, reason, f"group '{name}': {text}", (), metadata, retry_ms)


def checked(answer: LeaseAnswer, name: str) -> LeaseAnswer:
    """Return an answer that says that all went well; else as `check_status`."""
    check_status(int(answer.status), name, answer.group, answer.gone)
    return answer


def _shown(rows: list[int]) -> str:
    some = rows[: 2 * _ROWS_SHOWN]
    texts = [f"{first}-{stop - 1}" for first, stop in zip(some[::2], some[1::2], strict=True)]
    return ",".join(texts) + (",..." if len(rows) > 2 * _ROWS_SHOWN else "")


@contextmanager
def leader_errors() -> Iterator[None]:
    """Translate errors of a queue's leader into errors of calls.

    Raises:
        CallError: UNAVAILABLE, NOT_FOUND.
    """
    try:
        yield
    except LeaderUnavailableError as error:
        raise CallError(_CODE.UNAVAILABLE, "NO_LEADER", str(error), retry_ms=RETRY_MS) from error
    except TooEarlyError as error:
        raise upgrade_pending(str(error)) from error
    except QueueGoneError as error:
        raise CallError(_CODE.NOT_FOUND, "NOT_FOUND", str(error)) from error


def group_message(group: GroupInfo) -> pb.LeaseGroup:
    """Return a group as a message."""
    return pb.LeaseGroup(
        name=group.name.decode("utf-8", "replace"),
        epoch=group.epoch,
        next_lease=group.next_number,
        settled=group.settled,
        deadline_ms=group.deadline_ms,
        leases=[lease_state(lease) for lease in group.leases],
    )


def answered_group(answer: LeaseAnswer) -> pb.LeaseGroup | None:
    """Return the answering group as a message."""
    return None if answer.group is None else group_message(answer.group)


def lease_state(lease: LeaseInfo) -> pb.LeaseState:
    """Return a lease as a message."""
    rows = zip(lease.rows[::2], lease.rows[1::2], strict=True)
    return pb.LeaseState(
        lease=lease.number,
        state=_STATES[int(lease.state)],
        messages=lease.count,
        octets=lease.byte_count,
        message_ids=[Range(first=first, last=stop - 1) for first, stop in rows],
    )
