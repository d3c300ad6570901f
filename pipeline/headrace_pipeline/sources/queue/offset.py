"""Offset of a query with a group: the number of its last lease."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from headrace_pipeline.error import PipelineError

VERSION: Final = 1


class QueueOffset(NamedTuple):
    """An offset, as it stands in checkpoints."""

    queue: str  # whose group it is
    group: str  # whose leases are counted
    lease: int  # everything up to this lease has been read

    def to_json(self) -> dict[str, Any]:
        """Return what Spark keeps."""
        return {"version": VERSION, **self._asdict()}


def read_offset(given: dict[str, Any], queue: str, group: str) -> QueueOffset:
    """Return an offset of a checkpoint.

    Args:
        given: as Spark has kept it.
        queue: that is read now.
        group: likewise.

    Raises:
        PipelineError: a newer release has written it, or it is another queue's or group's.
    """
    version = given.get("version")
    if version != VERSION:
        raise PipelineError(
            f"the checkpoint has an offset of version {version}, and this release knows version "
            f"{VERSION}: go on with the release that wrote it, or with a new checkpoint location"
        )
    found = QueueOffset(given["queue"], given["group"], given["lease"])
    if (found.queue, found.group) != (queue, group):
        raise PipelineError(
            f"the checkpoint is of group '{found.group}' on queue '{found.queue}', and group "
            f"'{group}' on queue '{queue}' is to be read: a query has one of each for ever; give "
            "this one its own checkpoint location"
        )
    return found
