"""Drives a log step by step and notes what it must hold from then on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from headrace_raftlog.crash_explorer.crash_point import CrashPoint
from headrace_raftlog.crash_explorer.history import History, Legal
from headrace_raftlog.crash_explorer.image import (
    EMPTY,
    REMOVED,
    GroupImage,
    LogImage,
    entry_image,
    log_image,
)
from headrace_raftlog.crash_explorer.observed_files import ObservedFiles
from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.storage.identity import Identity
from headrace_raftlog.storage.options import LogOptions
from headrace_raftlog.storage.shared_log import SharedLog

DIRECTORY = "/data"  # the log and node.json stand side by side
CLUSTER = "explored"
NODE = 1


class ViolationError(Exception):
    """The log did what it must not."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is explored.

    Attributes:
        log_type: the log; tests put one with a bug in its place.
        identity_type: what counts the starts of a data directory, likewise.
        segment_bytes: length of its files.
        cache_bytes: entries it keeps in memory; 0 makes every read go to the disk.
        universe: groups are 1 to this.
        with_identity: whether each start is counted in the data directory before the log is opened.
    """

    log_type: type[SharedLog] = SharedLog
    identity_type: type[Identity] = Identity
    segment_bytes: int = 4096
    cache_bytes: int = 0
    universe: int = 4
    with_identity: bool = False

    def boot(self, files: ObservedFiles) -> int:
        """Count a start of the node."""
        return self.identity_type.open(DIRECTORY, CLUSTER, NODE, files).boot

    def open(self, files: ObservedFiles) -> SharedLog:
        """Open the log of a disk, without a writer thread."""
        options = LogOptions(
            segment_bytes=self.segment_bytes, cache_bytes=self.cache_bytes, stepped=True
        )
        return self.log_type.open(DIRECTORY, options, None, files)


class Driver:
    """A log on a disk in memory, and the history of what it was asked to hold.

    Attributes:
        files: the disk.
        points: every moment at which the power could have failed, so far, if it is watched.
        history: since the log was last opened.
    """

    def __init__(self, subject: Subject, files: ObservedFiles, legal: Legal, watched: bool) -> None:
        """Open the log.

        Args:
            subject: what is explored.
            files: the disk; not changed elsewhere from now on.
            legal: what the log may hold when it is opened.
            watched: whether to note the moments at which it could crash.

        Raises:
            ViolationError: it holds anything else.
        """
        self.subject = subject
        self.files = files
        self.points: list[CrashPoint] = []
        self.log: SharedLog
        self._legal: Callable[[], Legal] = lambda: legal
        self._serial = 0
        if watched:
            files.on_call = self._observe
        self._open()

    def _observe(self, call: str) -> None:
        number = len(self.points) + 1
        self.points.append(CrashPoint(number, call, self.files, self._legal()))

    def _open(self) -> None:
        legal = self._legal()
        if self.subject.with_identity:
            legal = self._boot(legal)
        self.log = self.subject.open(self.files)
        self.log.on_durable = self._durable
        found = log_image(self.log, self.subject.universe)
        problem = legal.judge(found)
        if problem:
            raise ViolationError(problem)
        self.history = History(found)
        self._legal = lambda: self.history.legal(legal.boots, legal.boots)

    def _boot(self, legal: Legal) -> Legal:
        legal = replace(legal, boots_begun=legal.boots_begun + 1)
        self._legal = lambda: legal
        boots = self.subject.boot(self.files)
        if not legal.boots < boots <= legal.boots_begun:
            raise ViolationError(
                f"this is start {boots}, {legal.boots} to {legal.boots_begun - 1} came before"
            )
        legal = replace(legal, boots=boots, boots_begun=boots)
        self._legal = lambda: legal
        return legal

    def _durable(self, tokens: list[object]) -> None:
        for token in tokens:
            assert isinstance(token, int)
            if self.log.failure is not None:
                raise ViolationError(f"call {token} was reported durable after the log had failed")
            self.history.acknowledge(token)

    def image(self, group: int) -> GroupImage:
        """Return what a group holds."""
        return self.history.now.get(group, EMPTY)

    def end(self) -> None:
        """Close the log and take a last look."""
        self.log.close()
        self.files.on_call("end")

    def restart(self) -> None:
        """Close the log and open it again."""
        self.log.close()
        self._open_again()

    def kill(self) -> None:
        """End the process without closing the log, and open it again in another one."""
        self.files.end_process()
        self._open_again()

    def _open_again(self) -> None:
        """Open the log; once more if a fault of the disk that was asked for hinders it."""
        try:
            self._open()
        except OSError:
            if not self.files.is_faulty():
                raise
            self.files.heal()
            self.files.end_process()
            self._open()

    def step(self) -> None:
        """Let the writer do what there is to do; a seal if there is nothing."""
        self.log.step()

    def flush(self) -> None:
        """Hand over what was appended."""
        self.log.flush()

    def commit(self) -> None:
        """Hand over what was appended and let the writer write it."""
        self.log.flush()
        self.log.step()

    def append(
        self,
        group: int,
        sizes: list[int],
        back: int = 0,
        vote: int | None = None,
        commit: int | None = None,
    ) -> None:
        """Append entries of given lengths, replacing the last `back` ones in a new term.

        A new hard state comes with them when `vote` or `commit` is given, or the term is new.
        """
        held = self.image(group)
        term = max(held.term, 1) + (back > 0 or (vote is not None and vote != held.vote))
        first = max(1, held.last_index() + 1 - back)
        entries = [
            Entry(first + at, term, at % 3, self._blob(group, first + at, size))
            for at, size in enumerate(sizes)
        ]
        state = None
        if term != held.term or vote is not None or commit is not None:
            state = HardState(
                term,
                held.vote if vote is None else vote,
                max(held.commit if commit is None else commit, 0),
            )
        self._submit(group, state, entries)

    def vote(self, group: int, member: int) -> None:
        """Vote in a new term."""
        held = self.image(group)
        self._submit(group, HardState(held.term + 1, member, held.commit), [])

    def hint(self, group: int, commit: int) -> None:
        """Raise the commit index, which need not be durable at any particular time."""
        if self.log.failure is not None:
            return
        held = self.image(group)
        state = HardState(held.term, held.vote, commit)
        image = {**self.history.now, group: held._replace(commit=commit)}
        self.history.add(f"hint({group}, {commit})", image, [])
        self.log.append(group, state, [], False, None)

    def remove(self, group: int) -> None:
        """Remove a group."""
        if self.log.failure is not None:
            return
        image = {**self.history.now, group: REMOVED}
        number = self.history.add(f"remove({group})", image, [])
        self.log.remove_group(group, number)

    def _blob(self, group: int, index: int, size: int) -> bytes:
        self._serial += 1
        word = f"<{group}:{index}:{self._serial}>".encode()
        return (word * (size // len(word) + 1))[:size]

    def _submit(self, group: int, state: HardState | None, entries: list[Entry]) -> None:
        if self.log.failure is not None:
            return  # nothing may be asked of a log that failed
        held = self.image(group)
        if state is not None:
            held = held._replace(
                term=state.term, vote=state.vote, commit=state.commit, commit_synced=state.commit
            )
        within: list[LogImage] = []
        kept = held.entries
        if entries:
            kept = kept[: entries[0].index - 1]
            within.append({**self.history.now, group: held})
        for entry in entries:
            kept = (*kept, entry_image(entry))
            within.append({**self.history.now, group: held._replace(entries=kept)})
        image = {**self.history.now, group: held._replace(entries=kept)}
        name = f"append({group}, {state}, {entries})"
        number = self.history.add(name, image, within[:-1])
        self.log.append(group, state, entries, True, number)
