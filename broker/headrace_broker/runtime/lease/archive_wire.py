"""Archives and the groups that read them as messages between nodes."""

from __future__ import annotations

from headrace_broker.core.queue.state.archive_effect import (
    ArchiveAnswer,
    ArchiveGroupInfo,
    ArchiveInfo,
)
from headrace_protos.cluster.v1 import cluster_pb2 as pb


def reply_of(answer: ArchiveAnswer) -> pb.LeaseReply:
    """Return a machine's answer as a message."""
    reply = pb.ArchiveReply(status=answer.status, first=answer.first, following=answer.following)
    if answer.group is not None:
        reply.archive_group.CopyFrom(group_message(answer.group))
    return pb.LeaseReply(request=answer.request, archive_reply=reply)


def answer_of(message: pb.LeaseReply) -> ArchiveAnswer:
    """Return what `reply_of` was given."""
    reply = message.archive_reply
    group = group_of(reply.archive_group) if reply.HasField("archive_group") else None
    return ArchiveAnswer(message.request, reply.status, group, reply.first, reply.following)


def state_of(info: ArchiveInfo, request: int) -> pb.ArchiveState:
    """Return an archive as a message, by its owner."""
    return pb.ArchiveState(
        request=request,
        serving=True,
        mode=info.mode,
        since_ms=info.since_ms,
        first=info.first,
        following=info.following,
        octets=info.octets,
        first_ms=info.first_ms,
        last_ms=info.last_ms,
        archive_groups=[group_message(group) for group in info.groups],
    )


def info_of(state: pb.ArchiveState) -> ArchiveInfo:
    """Return what `state_of` was given."""
    return ArchiveInfo(
        state.mode,
        state.since_ms,
        state.first,
        state.following,
        state.octets,
        state.first_ms,
        state.last_ms,
        [group_of(group) for group in state.archive_groups],
    )


def group_message(group: ArchiveGroupInfo) -> pb.ArchiveGroup:
    """Return a group as a message."""
    return pb.ArchiveGroup(
        name=group.name,
        epoch=group.epoch,
        committed=group.committed,
        committed_ms=group.committed_ms,
    )


def group_of(group: pb.ArchiveGroup) -> ArchiveGroupInfo:
    """Return what `group_message` was given."""
    return ArchiveGroupInfo(group.name, group.epoch, group.committed, group.committed_ms)
