"""Errors of the environment that a host of the log decides about."""

from __future__ import annotations


class RaftLogError(Exception):
    """Base of this package's errors."""


class CorruptLogError(RaftLogError):
    """Stored data fails a checksum where it must not: nothing was cut, the node must not serve."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(
            f"{path}: damaged record at byte {offset}: {reason}. It is not cut, because that "
            "could lose messages that were acknowledged. Run 'headrace log verify' on the "
            "directory; where the other members have what is lost, the node is mended or rebuilt "
            "from them when it starts. 'headrace log salvage' writes out what is intact."
        )
        self.path = path  # log file
        self.offset = offset  # byte position of the record
        self.reason = reason  # what is wrong there


class LostEntryError(CorruptLogError):
    """The record of an entry is not intact, or the disk does not return it any more.

    Its group stands still on this node until another member's copy has taken its place; what its
    log has promised is not forgotten. Nothing was read, and it may be tried again.

    Args:
        path: log file.
        offset: byte position of the record.
        reason: what is wrong there.
    """

    def __init__(self, path: str, offset: int, group: int, index: int, reason: str) -> None:
        super().__init__(path, offset, f"entry {index} of group {group} {reason}")
        self.group = group  # incarnation id
        self.index = index  # of the entry


class DamageFoundError(RaftLogError):
    """Damage was found that a running node cannot mend; its next start does."""


class LogWriteError(RaftLogError):
    """A write or sync failed; the node must stop, for a later sync may wrongly report success."""


class IdentityError(RaftLogError):
    """The data directory belongs to another node or cluster than the configuration says."""


class UnknownVersionError(IdentityError):
    """A file of the log has a version that this release does not know; nothing was changed.

    Args:
        path: the file.
        version: what it says.
    """

    def __init__(self, path: str, version: int) -> None:
        super().__init__(
            f"{path} has version {version}, which is not known to this release: a later one has "
            "written it. It is no damage, and nothing was changed; start that release, or a later "
            "one, on this directory"
        )


class LostDirectoryError(IdentityError):
    """Part of a data directory is gone: what its node has promised cannot be told from the rest."""


class DirectoryGoneError(RaftLogError):
    """Files that a running node has open were removed from its data directory, or replaced."""


class ForgottenError(RaftLogError):
    """The node's data are older than its promises on that disk; they are to be set aside."""


class ContradictedError(RaftLogError):
    """A leader's log has another entry where this member's is committed: promises were forgotten.

    Nothing was changed. Which of both counts, no node can tell.
    """


class CloneError(RaftLogError):
    """Another process runs as this node, with a copy of the same data."""


class LogLockedError(RaftLogError):
    """Another process, or another opening in this one, has the log's directory."""


class ReadTimeoutError(RaftLogError):
    """A read could not be confirmed in time; nothing was read, and it may be tried again."""

    def __init__(self, group: int, seconds: float) -> None:
        super().__init__(
            f"no leader of group {group} confirmed within {seconds:g} s that this node is up to "
            "date: a majority of the group's nodes does not run or cannot be reached from here. "
            "Try again, or ask another node."
        )
        self.group = group  # incarnation id
        self.seconds = seconds  # how long it waited
