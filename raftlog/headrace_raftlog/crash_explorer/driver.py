"""Steps a log, and records what it must hold from then on."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headrace_raftlog.crash_explorer.crash_point import CrashPoint
from headrace_raftlog.crash_explorer.history import History, Legal, allows, difference
from headrace_raftlog.crash_explorer.image import (
    EMPTY,
    REMOVED,
    EntryImage,
    GroupImage,
    LogImage,
    SnapshotImage,
    entry_image,
    log_image,
)
from headrace_raftlog.crash_explorer.observed_files import ObservedFiles
from headrace_raftlog.crash_explorer.subject import DIRECTORY, NODE, Subject
from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.membership import NOBODY, Membership
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.storage.writing.identity import Identity

COLLECT_BYTES: Final = 2000  # most that one step of garbage collection moves


class ViolationError(Exception):
    """The log broke a rule."""


class Driver:
    """A log on a disk in memory, and the history of its promises.

    Attributes:
        files: the disk.
        points: every moment at which the power could have failed, so far, if it is watched.
        history: since the log was last opened.
    """

    def __init__(
        self, subject: Subject, files: ObservedFiles, legal: Legal, life: int, watched: bool
    ) -> None:
        """Open the log.

        Args:
            subject: what is explored.
            files: the disk; not changed elsewhere from now on.
            legal: what the log may hold when it is opened.
            life: how many crashes came before; bodies tell in which life they were written.
            watched: whether to note the moments at which it could crash.

        Raises:
            ViolationError: it holds anything else.
        """
        self.subject = subject
        self.files = files
        self.points: list[CrashPoint] = []
        self.log: SharedLog
        self.identity: Identity
        self._legal: Callable[[], Legal] = lambda: legal
        self._life = life
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
        if self.log.quarantined:
            raise ViolationError(f"taken for damage: {self.log.quarantined}")
        found = log_image(self.log, self.subject.universe)
        problem = legal.judge(found)
        if problem:
            raise ViolationError(problem)
        self.history = History(legal.complete(found), self.subject.slice_bytes > 0)
        self._legal = lambda: self.history.legal(legal.starts)

    def _boot(self, legal: Legal) -> Legal:
        legal = replace(legal, starts=legal.starts.begin_start())
        self._legal = lambda: legal
        identity = self.subject.boot(self.files)
        problem = legal.starts.judge(identity)
        if problem:
            raise ViolationError(problem)
        self.identity = identity
        legal = replace(legal, starts=legal.starts.end_start(identity))
        self._legal = lambda: legal
        return legal

    def form(self) -> None:
        """Note in the data directory that it was formed, unless it was."""
        if self.identity.formed:
            return
        starts = self._legal().starts
        self._legal = lambda: self.history.legal(replace(starts, forming=True))
        founders = {NODE: self.identity.disk, NODE + 1: 77}
        self.identity = self.identity.form(DIRECTORY, founders, self.files)
        self._legal = lambda: self.history.legal(replace(starts, forming=True, formed=True))

    def _durable(self, tokens: list[object]) -> None:
        for token in tokens:
            assert isinstance(token, int)
            if self.log.failure is not None:
                raise ViolationError(f"call {token} was reported durable after the log had failed")
            self.history.acknowledge(token)

    def image(self, group: int) -> GroupImage:
        """Return what a group holds."""
        return self.history.now.get(group, EMPTY)

    def verify(self) -> None:
        """Read everything from the running log; all that was asked for must be acknowledged."""
        self.commit()
        if self.log.failure is not None or self.log.full:
            return
        if self.log.backlog_bytes:
            raise ViolationError(f"{self.log.backlog_bytes} bytes wait though all was written")
        found = log_image(self.log, self.subject.universe)
        if not allows(self.history.now, found, self.history.forgetful):
            text = difference(self.history.now, found)
            raise ViolationError(f"the running log does not hold what it was given\n{text}")

    def end(self) -> None:
        """Check everything, close the log and check the disk a last time."""
        self.verify()
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
        """Run the writer's next work; a seal if there is none."""
        self.log.step()

    def flush(self) -> None:
        """Hand over the appended entries."""
        self.log.flush()

    def commit(self) -> None:
        """Hand over the appended entries and let the writer write them."""
        self.flush()
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

        What is committed is not replaced.
        A new hard state comes with them when `vote` or `commit` is given, or the term is new.
        """
        held = self.image(group)
        term = max(held.term, 1) + (back > 0 or (vote is not None and vote != held.vote))
        known = held.commit if commit is None else commit
        first = max(held.first_index(), min(known, held.last_index()) + 1)
        first = max(first, held.last_index() + 1 - back)
        entries = [
            Entry(first + at, term, at % 3, self._blob(f"{group}:{first + at}", size))
            for at, size in enumerate(sizes)
        ]
        state = None
        if term != held.term or vote is not None or commit is not None:
            state = HardState(term, held.vote if vote is None else vote, known)
        self._submit(group, state, entries)

    def vote(self, group: int, member: int) -> None:
        """Vote in a new term."""
        held = self.image(group)
        self._submit(group, HardState(held.term + 1, member, held.commit), [])

    def hint(self, group: int, commit: int) -> None:
        """Raise the commit index, which need not be durable at any particular time."""
        held = self.image(group)
        if self._note(f"hint({group}, {commit})", group, held._replace(commit=commit)):
            state = HardState(held.term, held.vote, commit)
            self.log.append(group, state, [], False, None)

    def remove(self, group: int) -> None:
        """Remove a group."""
        number = self._note(f"remove({group})", group, REMOVED)
        if number:
            self.log.remove_group(group, number)

    def begin(self, group: int, member: int) -> None:
        """Begin a group, or begin it anew as another member."""
        membership = Membership((member, 2, 3))
        image = GroupImage(member=member, membership=membership)
        if self._note(f"begin({group}, {member})", group, image):
            self.log.begin(group, member, membership)

    def snapshot(self, group: int, index: int, live: list[int], size: int) -> None:
        """Take a snapshot with a state of given length."""
        held = self.image(group)
        taken = self._snapshot(group, index, held.term_at(index), live, size)
        image = held._replace(
            membership=NOBODY,
            snapshot=SnapshotImage.of(taken),
            live=tuple(held.find(each) for each in live),
            entries=tuple(entry for entry in held.entries if entry[0] > index),
            incoming=tuple(each for each in held.incoming if each > index),
        )
        number = self._note(f"snapshot({group}, {index}, {live})", group, image)
        if number:
            self.log.save_snapshot(group, taken, number)

    def fetch(self, group: int, live: list[int], count: int) -> None:
        """Add entries from a peer: at most `count` of those live ones that are missing."""
        held = self.image(group)
        if self.log.failure is not None:
            return
        wanted = self.log.missing(group, array("Q", live), held.commit)[:count]
        if wanted:
            image = held._replace(incoming=tuple(sorted({*held.incoming, *wanted})))
            self._note(f"fetch({group}, {wanted})", group, image)
            self.log.add_incoming(group, [Entry(*peer_entry(group, index)) for index in wanted])

    def install(self, group: int, index: int, live: list[int], size: int, keep: bool) -> None:
        """Install a peer's snapshot whose live entries exist or were fetched.

        Args:
            group: the group.
            index: of the snapshot.
            live: indexes up to `index`.
            size: bytes of its state.
            keep: whether the entries behind `index` stay; there must be one at `index` then.
        """
        held = self.image(group)
        if self.log.failure is not None or held.snapshot_index() >= index:
            return
        lacking = self.log.missing(group, array("Q", live), held.commit)
        if lacking:
            raise ViolationError(f"group {group} lacks {lacking}, which were fetched")
        term = held.term_at(index) if keep else max(held.term, 1)
        installed = self._snapshot(group, index, term, live, size)
        image = held._replace(
            membership=NOBODY,
            snapshot=SnapshotImage.of(installed),
            live=tuple(
                peer_entry(group, each) if each in held.incoming else held.find(each)
                for each in live
            ),
            entries=tuple(entry for entry in held.entries if keep and entry[0] > index),
            incoming=tuple(each for each in held.incoming if each > index),
        )
        number = self._note(f"install({group}, {index}, {live}, {keep})", group, image)
        self.log.install_snapshot(group, installed, keep, number)

    def dead(self, group: int, index: int) -> None:
        """Say that an entry will not be read again."""
        if self.log.failure is None:
            self.log.entry_dead(group, index)

    def collect(self, bytes_max: int = COLLECT_BYTES) -> list[int]:
        """Collect garbage a little; return the groups that should take a snapshot."""
        if self.log.failure is not None:
            return []
        self.history.forgetful = True
        wanted = self.log.collect(bytes_max)
        self.flush()
        return wanted

    def _blob(self, name: str, size: int) -> bytes:
        self._serial += 1
        return repeated(f"<{name}:{self._life}.{self._serial}>", size)

    def _snapshot(self, group: int, index: int, term: int, live: list[int], size: int) -> Snapshot:
        state = self._blob(f"state {group}:{index}", size)
        membership = Membership((1, 2, 3), (1000 + self._serial,))
        return Snapshot(index, term, membership, state, array("Q", live))

    def _note(self, name: str, group: int, image: GroupImage) -> int:
        """Note a call that is about to be made; return its number, 0 if it must not be made."""
        if self.log.failure is not None:
            return 0  # nothing may be asked of a log that failed
        return self.history.add(name, group, {**self.history.now, group: image}, [])

    def _submit(self, group: int, state: HardState | None, entries: list[Entry]) -> None:
        if self.log.failure is not None:
            return
        held = self.image(group)
        if state is not None:
            held = held._replace(
                term=state.term, vote=state.vote, commit=state.commit, commit_synced=state.commit
            )
        within: list[LogImage] = []
        kept: tuple[EntryImage, ...] = held.entries
        if entries:
            kept = kept[: entries[0].index - held.first_index()]
            within.append({**self.history.now, group: held})
        for entry in entries:
            kept = (*kept, entry_image(entry))
            within.append({**self.history.now, group: held._replace(entries=kept)})
        image = {**self.history.now, group: held._replace(entries=kept)}
        name = f"append({group}, {state}, {entries})"
        number = self.history.add(name, group, image, within[:-1])
        self.log.append(group, state, entries, True, number)


def repeated(word: str, size: int) -> bytes:
    """Return a text again and again, cut to a length."""
    return (word * (size // len(word) + 1))[:size].encode()


def peer_entry(group: int, index: int) -> EntryImage:
    """Return what the peers have for an entry."""
    return index, 1, 0, repeated(f"<peer {group}:{index}>", 37 * (7 * index + group) % 400)
