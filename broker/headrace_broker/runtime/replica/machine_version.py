"""Machine versions: a check that this node can apply the commands of a queue's log."""

from __future__ import annotations

from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.model.definition import Queue
from headrace_raftlog.model.errors import RaftLogError


class MachineVersionError(RaftLogError):
    """A queue's log holds an entry that only newer code understands: the node must stop."""


def check_version(queue: Queue, version: int) -> None:
    """Do nothing where this code knows the machine version of a queue.

    Raises:
        MachineVersionError: it does not.
    """
    if version > MACHINE_VERSION:
        raise MachineVersionError(
            f"queue '{queue.name}' in vhost '{queue.vhost}' (group {queue.group}) has been"
            f" brought to machine version {version}, and this node knows versions up to"
            f" {MACHINE_VERSION} only: start it with a release as new as its peers'"
        )
