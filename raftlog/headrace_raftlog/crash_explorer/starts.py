"""Facts that a data directory must keep about its node: number of starts, and founders."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace_raftlog.storage.writing.identity import Identity


@dataclass(frozen=True, slots=True)
class Starts:
    """Promises about the identity file, and its possible contents.

    Attributes:
        boots: starts that were counted for certain.
        boots_begun: starts that may have been counted.
        formed: whether the directory was formed for certain.
        forming: whether it may have been.
    """

    boots: int = 0
    boots_begun: int = 0
    formed: bool = False
    forming: bool = False

    def begin_start(self) -> Starts:
        """Return this with one more start under way."""
        return replace(self, boots_begun=self.boots_begun + 1)

    def judge(self, identity: Identity) -> str:
        """Return the error in the findings of a start under way, '' for none."""
        if not self.boots < identity.boot <= self.boots_begun:
            return f"this is start {identity.boot}, {self.boots} to {self.boots_begun - 1} were"
        if bool(identity.formed) < self.formed or bool(identity.formed) > self.forming:
            return f"formed with {identity.formed}, though that was promised: {self.formed}"
        return ""

    def end_start(self, identity: Identity) -> Starts:
        """Return the promises once a start has found `identity`."""
        formed = bool(identity.formed)
        return Starts(identity.boot, identity.boot, formed, formed)

    def implied_by(self, other: Starts) -> bool:
        """Return whether everything that `other` allows is allowed."""
        return (
            self.boots <= other.boots
            and other.boots_begun <= self.boots_begun
            and self.formed <= other.formed
            and other.forming <= self.forming
        )
