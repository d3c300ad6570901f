"""Interface of a simulated node to its disk, whichever it is."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections.abc import Callable

from mypy_extensions import mypyc_attr

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.log import GroupLog
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.simulator.memory_log import MemoryLog
from headrace_raftlog.simulator.parameters import Parameters


@mypyc_attr(allow_interpreted_subclasses=True)
class Store:
    """The log that all groups of one node share; survives the node's crashes.

    What is appended is visible at once and durable when its token comes back.

    Attributes:
        durable: what is surely on the disk, by group; the checker's knowledge.
        removed: groups removed for good, durably or not.
        full: whether the disk has no space.
        under_way: as `LogWriter.under_way` says it; None in a store that does not say.
        rotten: by group, entries that rotted and may not be put back yet.
    """

    durable: dict[int, MemoryLog]
    removed: dict[int, bool]
    full: bool
    rotten: dict[int, set[int]]

    @property
    def under_way(self) -> tuple[int, int] | None:
        """Return a number of the write under way, None while there is none."""
        return None

    @abstractmethod
    def open(self, done: Callable[[list[object]], None], failed: Callable[[], None]) -> None:
        """Recover; `done` gets the tokens that one sync made durable, `failed` a lost disk."""

    @abstractmethod
    def set_parameters(self, parameters: Parameters) -> None:
        """Go on with other latencies and faults."""

    @abstractmethod
    def power_off(self) -> None:
        """Lose unsynced writes, except those that happened to reach the disk."""

    @abstractmethod
    def quarantined(self) -> list[int]:
        """Return the groups that recovery found damaged, ascending."""

    @abstractmethod
    def damage(self, group: int) -> bool:
        """Flip a bit in a group's synced data; False without any. Node is down."""

    @abstractmethod
    def wipe(self) -> None:
        """Lose everything. The node is down."""

    @abstractmethod
    def log(self, group: int) -> GroupLog:
        """Return a group's log as its core sees it."""

    @abstractmethod
    def member(self, group: int) -> int:
        """Return the member id that a group has here, 0 when the group is not known."""

    @abstractmethod
    def hard_state(self, group: int) -> HardState:
        """Return the newest hard state."""

    @abstractmethod
    def membership(self, group: int) -> Membership:
        """Return who belonged to the group before `first_index()`."""

    @abstractmethod
    def entry(self, group: int, index: int) -> Entry:
        """Return an entry, even if it lies behind the snapshot, while it is live.

        Raises:
            KeyError: it is not there.
        """

    @abstractmethod
    def begin(self, group: int, member: int, membership: Membership) -> None:
        """Forget a group and begin it anew."""

    @abstractmethod
    def append(
        self,
        group: int,
        hard_state: HardState | None,
        entries: list[Entry],
        must_sync: bool,
        token: object,
    ) -> None:
        """Write a Ready's part; `token` comes back when it is durable."""

    @abstractmethod
    def save_snapshot(self, group: int, snapshot: Snapshot, token: object) -> None:
        """Write an own snapshot; it replaces the log's beginning once it is durable."""

    @abstractmethod
    def install_snapshot(self, group: int, snapshot: Snapshot, keep_suffix: bool) -> None:
        """Take a leader's snapshot over, at once."""

    @abstractmethod
    def add_incoming(self, group: int, entries: list[Entry]) -> None:
        """Keep fetched bodies."""

    @abstractmethod
    def missing(self, group: int, live: array[int], commit_index: int) -> list[int]:
        """Return which live entries have to be fetched."""

    @abstractmethod
    def read_snapshot(self, group: int) -> Snapshot | None:
        """Return the newest snapshot."""

    @abstractmethod
    def entry_dead(self, group: int, index: int) -> None:
        """Hint that an entry will not be read again."""

    @abstractmethod
    def remove_group(self, group: int) -> None:
        """Forget a group for good."""

    @abstractmethod
    def flush(self) -> None:
        """Let appended entries reach the disk."""

    @abstractmethod
    def collect(self) -> list[int]:
        """Give space back; return groups whose snapshot would free more."""
