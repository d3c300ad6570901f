"""Setting a damaged log aside, so that its node can begin anew while nothing is thrown away."""

from __future__ import annotations

import os
from typing import Final

from headrace_raftlog.model.limits import SET_ASIDE_MAX
from headrace_raftlog.model.membership import can_do_without
from headrace_raftlog.storage.files import Files
from headrace_raftlog.storage.identity import IDENTITY_NAME, Identity
from headrace_raftlog.storage.opening import lock_directory
from headrace_raftlog.storage.salvage import Salvage
from headrace_raftlog.storage.segment import segment_sequence

ASIDE_PREFIX: Final = "damaged-"


def needed_here(directory: str, node: int, files: Files) -> list[int]:
    """Return groups that could decide nothing any more without this node's member, ascending.

    Told from what is intact: the newest membership that the log still shows of each group.

    Raises:
        OSError: a file cannot be read.
    """
    salvage = Salvage(files, directory)
    try:
        salvage.run()
        groups = sorted([*salvage.groups, *salvage.broken])
        return [group for group in groups if not can_do_without(salvage.membership(group), node)]
    finally:
        salvage.close()


def set_aside(directory: str, known: Identity, anew: Identity, files: Files) -> str:
    """Move a log's segments to a directory beside them and give the data directory a new identity.

    The new identity comes first, then the oldest segments: what a crash leaves of them lacks its
    beginning, is found damaged again, and is set aside in its turn. The sets before the last ones
    are removed (`SET_ASIDE_MAX`).

    Args:
        directory: data directory; nobody uses it.
        known: its identity, which goes with the segments.
        anew: its identity from now on.
        files: the file system.

    Returns:
        The directory with what was set aside.

    Raises:
        LogLockedError: it is in use.
        OSError: as the system says; it can be tried again.
    """
    lock = lock_directory(files, directory)
    try:
        place = os.path.join(directory, f"{ASIDE_PREFIX}{known.boot:010d}-{known.disk}")
        files.make_directory(place)
        known.write(place, files)
        anew.write(directory, files)
        for name in files.names(directory):
            if segment_sequence(name):
                files.rename(os.path.join(directory, name), os.path.join(place, name))
                files.sync_directory(place)
                files.sync_directory(directory)
        aside = [name for name in files.names(directory) if name.startswith(ASIDE_PREFIX)]
        for name in aside[:-SET_ASIDE_MAX]:
            _remove(os.path.join(directory, name), files)
        return place
    finally:
        files.close(lock)


def _remove(place: str, files: Files) -> None:
    for name in files.names(place):
        if segment_sequence(name) or name == IDENTITY_NAME:
            files.remove(os.path.join(place, name))
    files.sync_directory(place)
