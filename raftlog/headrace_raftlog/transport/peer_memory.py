"""A node's memory of its peers' disks: does a peer still have its promised batches?

A mark names the last process of a disk that has promised something to this node, or to one that
told of it. A process that was only let in has promised nothing beyond what it found: if it was
started from a copy while the one before it runs on, that one has all of it, and is not outdated.

Pure: who asks says what was heard and which processes are there.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace_raftlog.model.limits import DISKS_REMEMBERED_MAX
from headrace_raftlog.model.mark import Mark, survived
from headrace_raftlog.transport.identity import (
    CloneRefusedError,
    ForgottenDiskError,
    StreamIdentity,
)


class PeerMemory:
    """Marks of peers' disks: the highest that was heard of each.

    Batches are heard of with every other frame, so each is only noted; marks are made of them when
    somebody looks.
    """

    def __init__(self, node: int = 0, marks: Mapping[int, tuple[Mark, ...]] | None = None) -> None:
        self.node = node  # this node's id
        self._changed = False
        self._heard: dict[tuple[int, int], int] = {}  # batches beyond those of the marks
        self._marks = {
            (peer, mark.disk): mark for peer, several in (marks or {}).items() for mark in several
        }
        self._news: set[tuple[int, int]] = set()
        self._met = {peer: several[-1].disk for peer, several in (marks or {}).items() if several}

    @property
    def changed(self) -> bool:
        """True once anything was heard since this was last set to False."""
        return self._changed or bool(self._heard)

    @changed.setter
    def changed(self, changed: bool) -> None:
        self._settle()
        self._changed = changed

    def marks(self) -> dict[int, tuple[Mark, ...]]:
        """Return everything by node id, the disks heard last at the end."""
        self._settle()
        found: dict[int, tuple[Mark, ...]] = {}
        for (node, _), mark in self._marks.items():
            found[node] = (*found.get(node, ()), mark)
        return found

    def knows(self, node: int, disk: int) -> bool:
        """Return whether anything was heard of a disk."""
        return (node, disk) in self._marks

    def news(self) -> list[tuple[int, Mark]]:
        """Return the marks that have changed since the last call, by node id."""
        self._settle()
        found = [(key[0], self._marks[key]) for key in sorted(self._news) if key in self._marks]
        self._news.clear()
        return [(node, mark) for node, mark in found if mark.process]

    def everything(self) -> list[tuple[int, Mark]]:
        """Return all marks, by node id."""
        self._settle()
        return [(node, mark) for (node, _), mark in self._marks.items() if mark.process]

    def judge(self, peer: StreamIdentity, running: StreamIdentity | None) -> None:
        """Compare a peer's statement about its log with the memory of its disk.

        Args:
            peer: who calls or answers.
            running: the process of that node to which a session stands, None for none.

        Raises CloneRefusedError: another process of that node runs with a copy of the same disk;
        ForgottenDiskError: it lacks what it had.
        """
        self._settle()
        mark = self._marks.get((peer.node, peer.disk))
        if not peer.formed:
            return  # it has never promised anything
        if mark is None or not peer.process or _names(mark, peer):
            return
        left = survived(peer.starts, mark.boot)
        if left >= mark.batch:
            return
        if running is not None and running.disk == peer.disk and running.process != peer.process:
            raise clone_refused(peer, running)
        found = f"its log ended at batch {left}"
        if left < 0:
            found = (
                f"it starts as boot {peer.boot}, from a copy of its data directory that is older, "
                "or of which a second process was started"
            )
        raise ForgottenDiskError(
            f"node {peer.node} came back with older data than it had: {found}, but node "
            f"{self.node} has heard of batch {mark.batch} on that disk, under boot {mark.boot}. "
            "What it promised in between is lost, so with these data it takes part no more",
            peer.disk,
        )

    def met(self, peer: StreamIdentity) -> int:
        """Note a process that was not refused.

        The mark names it once it has promised something (`promised`), until then the one before.

        Returns:
            The disk with which its node was met last, if that was another one; else 0.
        """
        if not peer.process:
            return 0
        former = self._met.get(peer.node, peer.disk)
        self._met[peer.node] = peer.disk
        self._settle()
        key = (peer.node, peer.disk)
        known = self._marks.pop(key, None)
        if known is None:
            mark = _first(peer)
        elif _names(known, peer):
            mark = Mark(peer.disk, peer.boot, peer.process, max(_found(peer), known.batch))
        else:
            left = survived(peer.starts, known.boot)  # of its batches, not of all that peer found
            mark = known._replace(batch=max(left, known.batch))
        self._marks[key] = mark  # heard last, hence at the end
        if mark != known:
            self._note(key)
        self._forget_oldest(peer.node)
        return former if former != peer.disk else 0

    def heard(self, peer: StreamIdentity, batch: int) -> None:
        """Note that a process that was met has synced a batch, if the mark names it."""
        key = (peer.node, peer.disk)
        known = self._marks.get(key)
        if (
            known is not None
            and known.process == peer.process
            and batch > self._heard.get(key, known.batch)
        ):
            self._heard[key] = batch

    def promised(self, peer: StreamIdentity, batch: int) -> None:
        """Note that a process that was met promises something now: the mark names it.

        Args:
            peer: who promises.
            batch: the newest that it has synced, as far as is known.
        """
        if not peer.process:
            return
        self._settle()
        key = (peer.node, peer.disk)
        known = self._marks.get(key)
        had = known.batch if known is not None else 0
        mark = Mark(peer.disk, peer.boot, peer.process, max(batch, _found(peer), had))
        if mark != known:
            self._put(key, mark)

    def told(self, node: int, mark: Mark, running: StreamIdentity | None) -> bool:
        """Note what a peer remembers of another node's disk.

        Args:
            node: the other node.
            mark: as that peer says.
            running: the process of that node to which a session stands here, None for none.

        Returns:
            Whether the session with `running` must end, for it has forgotten promises.
        """
        if not mark.process:
            return False
        self._settle()
        key = (node, mark.disk)
        known = self._marks.get(key)
        if running is not None and running.process == mark.process and running.disk == mark.disk:
            self.promised(running, mark.batch)
            return False
        if known is not None and not known.process and known.boot == mark.boot:
            self._put(key, mark._replace(batch=max(known.batch, mark.batch)))  # it has a name now
        if running is None or running.disk != mark.disk or not running.process:
            if known is None or _later(known, mark):
                self._put(key, mark)
            return False
        if mark.boot < running.boot:
            lost = survived(running.starts, mark.boot) < mark.batch
        elif mark.boot == running.boot:  # one of two that began alike: the one that has done more
            here = known.batch if known is not None else 0
            lost = (mark.batch, mark.process) > (here, running.process)
        else:
            lost = False  # whoever comes with that boot is judged when it comes
        if lost:
            self._put(key, mark)  # that the other one was let in here does not make up for it
        return lost

    def _put(self, key: tuple[int, int], mark: Mark) -> None:
        self._marks[key] = mark
        node, disk = key
        met = (node, self._met.get(node, disk))
        if met != key and met in self._marks:  # only told of: the one that was met stays the last
            self._marks[met] = self._marks.pop(met)
        self._note(key)
        self._forget_oldest(node)

    def _forget_oldest(self, node: int) -> None:
        disks = [each for each in self._marks if each[0] == node]
        for each in disks[:-DISKS_REMEMBERED_MAX]:
            del self._marks[each]

    def _settle(self) -> None:
        """Make marks of the batches that were heard of."""
        for key, batch in self._heard.items():
            known = self._marks.get(key)
            if known is not None:
                self._marks[key] = known._replace(batch=batch)
                self._note(key)
        self._heard.clear()

    def _note(self, key: tuple[int, int]) -> None:
        self._changed = True
        self._news.add(key)


def _found(peer: StreamIdentity) -> int:
    """Return the number of the last batch that a process found at its start."""
    return peer.starts[-1][1] if peer.starts else 0


def _first(peer: StreamIdentity) -> Mark:
    """Return the mark of a disk that nothing was heard of before.

    It stands for the process before the one that was met, without its name: that one may run, and
    be met later, if the one that was met is a copy.
    """
    before = peer.starts[-1][0] - 1 if peer.starts else 0
    if before < 1:
        return Mark(peer.disk, peer.boot, peer.process, _found(peer))
    return Mark(peer.disk, before, 0, _found(peer))


def _names(mark: Mark, peer: StreamIdentity) -> bool:
    """Return whether a mark is that of a process."""
    return mark.process == peer.process or (not mark.process and mark.boot == peer.boot)


def _later(known: Mark, told: Mark) -> bool:
    """Return whether a report goes beyond the memory of a disk."""
    if known.process == told.process:
        return told.batch > known.batch
    return told.boot > known.boot


def clone_refused(peer: StreamIdentity, running: StreamIdentity) -> CloneRefusedError:
    """Return the refusal of a second process of a node that runs."""
    return CloneRefusedError(
        f"node {peer.node} runs twice: a process at {running.address!r} (boot {running.boot}) has "
        f"its place, and a second one at {peer.address!r} (boot {peer.boot}) was started from a "
        "copy of the same data directory. The second one is refused; stop it, and give each node "
        "a directory of its own",
        peer.process,
    )
