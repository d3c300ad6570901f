"""Groups and leases as messages between nodes."""

from __future__ import annotations

from headrace_broker.core.queue.state.lease_effect import GroupInfo, LeaseAnswer, LeaseInfo
from headrace_protos.cluster.v1 import cluster_pb2 as pb


def reply_of(answer: LeaseAnswer) -> pb.LeaseReply:
    """Return a machine's answer as a message."""
    reply = pb.LeaseReply(
        request=answer.request,
        status=answer.status,
        count=answer.count,
        octets=answer.octets,
        ready=answer.ready,
    )
    if answer.group is not None:
        reply.lease_group.CopyFrom(group_message(answer.group))
    reply.gone.extend(lease_message(lease) for lease in answer.gone)
    return reply


def answer_of(reply: pb.LeaseReply) -> LeaseAnswer:
    """Return what `reply_of` was given."""
    group = group_of(reply.lease_group) if reply.HasField("lease_group") else None
    gone = [lease_of(lease) for lease in reply.gone]
    return LeaseAnswer(
        reply.request, reply.status, group, reply.count, reply.octets, reply.ready, gone
    )


def group_message(group: GroupInfo) -> pb.LeaseGroup:
    """Return a group as a message."""
    return pb.LeaseGroup(
        name=group.name,
        epoch=group.epoch,
        next_number=group.next_number,
        settled=group.settled,
        deadline_ms=group.deadline_ms,
        leases=[lease_message(lease) for lease in group.leases],
    )


def group_of(group: pb.LeaseGroup) -> GroupInfo:
    """Return what `group_message` was given."""
    leases = [lease_of(lease) for lease in group.leases]
    return GroupInfo(
        group.name, group.epoch, group.next_number, group.settled, group.deadline_ms, leases
    )


def lease_message(lease: LeaseInfo) -> pb.Lease:
    """Return a lease as a message."""
    return pb.Lease(
        number=lease.number,
        state=lease.state,
        count=lease.count,
        octets=lease.octets,
        rows=lease.rows,
    )


def lease_of(lease: pb.Lease) -> LeaseInfo:
    """Return what `lease_message` was given."""
    return LeaseInfo(lease.number, lease.state, lease.count, lease.octets, list(lease.rows))
