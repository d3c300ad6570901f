"""Errors of the environment that a host of the log decides about."""

from __future__ import annotations


class RaftLogError(Exception):
    """Base of this package's errors."""


class CorruptLogError(RaftLogError):
    """Stored data fails its checksum where it must not: nothing was cut, the node must not serve.

    Args:
        path: log file.
        offset: byte position of the record.
        reason: what is wrong there.
    """

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(
            f"{path}: damaged record at byte {offset}: {reason}. It is not cut, because that "
            "could lose messages that were acknowledged. Run 'headrace log verify' on the "
            "directory; where the other members have what is lost, the node is mended or rebuilt "
            "from them when it starts. 'headrace log salvage' writes out what is intact."
        )
        self.path = path
        self.offset = offset
        self.reason = reason


class LogFullError(RaftLogError):
    """No space is left on the log's device; what was accepted stays, nothing new is taken."""


class LogWriteError(RaftLogError):
    """A write or sync failed; the node must stop, for a later sync may wrongly report success."""


class IdentityError(RaftLogError):
    """The data directory belongs to another node or cluster than the configuration says."""


class ForgottenError(RaftLogError):
    """The node's data are older than what it promised on that disk; they are to be set aside."""


class CloneError(RaftLogError):
    """Another process runs as this node, with a copy of the same data."""


class LogLockedError(RaftLogError):
    """Another process, or another opening in this one, has the log's directory."""


class ReadTimeoutError(RaftLogError):
    """A read could not be confirmed in time; nothing was read, and it may be tried again.

    Args:
        group: incarnation id.
        seconds: how long it waited.
    """

    def __init__(self, group: int, seconds: float) -> None:
        super().__init__(
            f"no leader of group {group} confirmed within {seconds:g} s that this node is up to "
            "date: a majority of the group's nodes does not run or cannot be reached from here. "
            "Try again, or ask another node."
        )
        self.group = group
        self.seconds = seconds
