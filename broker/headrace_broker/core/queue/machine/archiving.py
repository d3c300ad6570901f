"""Groups that read a queue's archive, and rows that go."""

from __future__ import annotations

from mypy_extensions import i64

from headrace_broker.core.queue.command.archive_command import (
    ArchiveCommand,
    CloseArchive,
    CommitArchive,
    OpenArchive,
)
from headrace_broker.core.queue.messages.effect import Effect
from headrace_broker.core.queue.state.archive import ArchiveGroup
from headrace_broker.core.queue.state.archive_effect import (
    ARCHIVE_FENCED,
    ARCHIVE_GROUPS_FULL,
    ARCHIVE_NOT_YET,
    ARCHIVE_OFF,
    ARCHIVE_OK,
    ARCHIVE_UNKNOWN_GROUP,
    ArchiveAnswer,
)
from headrace_broker.core.queue.state.queue_state import QueueState
from headrace_broker.model.limits import ARCHIVE_DROPPED_MAX, ARCHIVE_GROUPS_MAX


def apply_archive_command(
    state: QueueState, command: ArchiveCommand, effects: list[Effect]
) -> None:
    """Carry out a command of a group that reads, or say why not."""
    archive = state.archived
    group = archive.groups.get(command.name)
    status: i64 = ARCHIVE_OK
    if isinstance(command, OpenArchive):
        if archive.since_ms == 0:
            status = ARCHIVE_OFF
        elif group is None and len(archive.groups) >= ARCHIVE_GROUPS_MAX:
            status = ARCHIVE_GROUPS_FULL
        else:
            status = _open(state, group, command)
    elif group is None:
        status = ARCHIVE_OK if isinstance(command, CloseArchive) else ARCHIVE_UNKNOWN_GROUP
    elif command.epoch != group.epoch and not (
        isinstance(command, CloseArchive) and command.epoch == 0
    ):
        status = ARCHIVE_FENCED
    elif isinstance(command, CommitArchive):
        status = _commit(state, group, command.up_to)
    elif isinstance(command, CloseArchive):
        del archive.groups[command.name]
    archive.find_floor()
    now = archive.groups.get(command.name)
    told = None if now is None else now.info()
    effects.append(ArchiveAnswer(command.request, status, told, archive.first, archive.following))


def _open(state: QueueState, group: ArchiveGroup | None, command: OpenArchive) -> i64:
    archive = state.archived
    if group is None:
        group = ArchiveGroup(command.name)
        group.committed = archive.first
        group.committed_ms = state.now_ms
        archive.groups[command.name] = group
    epoch = group.openers.get(command.opener)
    if epoch is None:
        archive.epochs += 1
        group.open(command.opener, archive.epochs)
    elif epoch != group.epoch:  # asked again after another owner has opened it
        return ARCHIVE_FENCED
    return ARCHIVE_OK


def _commit(state: QueueState, group: ArchiveGroup, up_to: i64) -> i64:
    if up_to > state.archived.following:
        return ARCHIVE_NOT_YET
    group.committed = max(group.committed, up_to)
    group.committed_ms = state.now_ms
    return ARCHIVE_OK


def drop_rows(state: QueueState, effects: list[Effect]) -> None:
    """End a command: drop rows that were read, are too old or too many, within the bound.

    That are some beside as many as came, so that a full archive drops as many as it accepts.
    """
    archive = state.archived
    room: i64 = ARCHIVE_DROPPED_MAX + archive.appended
    archive.appended = 0
    while room > 0 and archive.is_over(state.settings, state.now_ms):
        archive.drop_first(effects)
        room -= 1


def rows_due_ms(state: QueueState) -> i64:
    """Return when a row is to go (Unix time in ms), 1 for at once, 0 for never."""
    archive = state.archived
    if archive.is_over(state.settings, state.now_ms):
        return 1
    age = state.settings.archive_max_age_ms
    return archive.first_ms + age if age >= 0 and archive.count > 0 else 0
