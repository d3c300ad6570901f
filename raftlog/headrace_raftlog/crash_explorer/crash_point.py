"""One moment of a run, and every disk that a power failure at that moment can leave."""

from __future__ import annotations

import random
from collections.abc import Iterator
from hashlib import blake2b

from headrace_raftlog.crash_explorer.history import Legal
from headrace_raftlog.storage.disk.memory_files import (
    SECTOR_BYTES,
    MemoryFile,
    MemoryFiles,
    NameChange,
    overlay,
)

Disk = dict[str, bytes]
KILL = -1  # in place of a mask: only the process ends, the system keeps what was not synced
EXHAUSTIVE_CHOICES_MAX = 8  # up to here all subsets are tried, beyond it extremes and samples


class FileChoices:
    """Parts of one file that may or may not survive.

    Attributes:
        synced: bytes that survive for certain.
        sectors: (offset, bytes) of unsynced sector writes, in order, those left out whose survival
            makes no difference.
        length: length of the file as written, when it grew since its last sync; else 0.
    """

    def __init__(self, file: MemoryFile) -> None:
        self.synced = bytes(file.synced)
        self._unsynced = list(file.unsynced)
        self._doubtful = list(file.doubtful)
        pending = self._doubtful + self._unsynced
        self.length = len(file.written) if len(file.written) > len(file.synced) else 0
        written: dict[int, int] = {}
        for offset, _ in pending:
            written[offset // SECTOR_BYTES] = written.get(offset // SECTOR_BYTES, 0) + 1
        self.sectors = [
            (offset, data)
            for offset, data in pending
            if written[offset // SECTOR_BYTES] > 1 or self._before(offset, len(data)) != data
        ]

    def _before(self, offset: int, count: int) -> bytes:
        return self.synced[offset : offset + count].ljust(count, b"\0")

    def count(self) -> int:
        """Return how many yes-or-no choices there are."""
        return len(self.sectors) + (self.length > 0)

    def build(self, mask: int) -> bytes:
        """Return the file with the chosen sectors, then with its new length if chosen."""
        if not mask:
            return self.synced
        data = bytearray(self.synced)
        for number, (offset, sector) in enumerate(self.sectors):
            if mask >> number & 1:
                overlay(data, sector, offset)
        if self.length and mask >> len(self.sectors) & 1 and len(data) < self.length:
            data.extend(bytes(self.length - len(data)))
        return bytes(data)

    def copy(self) -> MemoryFile:
        """Return the file as it was, with all choices open."""
        file = MemoryFile(self.synced)
        file.unsynced = list(self._unsynced)
        file.doubtful = list(self._doubtful)
        for offset, sector in file.pending():
            overlay(file.written, sector, offset)
        return file


class CrashPoint:
    """The moment before a call takes effect, with the promises up to then.

    A call that changes something is under way: a write that will be synced has been written, a
    sync has not begun. Choices are numbered: changes of names first, then file by file.

    Attributes:
        number: place in the run, from 1.
        call: the call that is about to happen, for people.
        legal: what a log opened after a crash here may hold.
        count: how many yes-or-no choices there are.
    """

    def __init__(self, number: int, call: str, files: MemoryFiles, legal: Legal) -> None:
        self.number = number
        self.call = call
        self.legal = legal
        self._names = dict(files.synced_names)
        self._changes = list(files.name_changes)
        self._choices: dict[MemoryFile, FileChoices] = {}
        for file in [*self._names.values(), *(change.file for change in self._changes)]:
            if file not in self._choices:
                self._choices[file] = FileChoices(file)
        self.count = len(self._changes) + sum(each.count() for each in self._choices.values())
        self._built: dict[tuple[MemoryFile, int], tuple[bytes, bytes]] = {}

    def masks(self, samples: int, seed: int) -> Iterator[int]:
        """Yield choices, each as a bit mask, without repetition; first KILL.

        All of them when they are few. Else the extremes: nothing, everything, each alone, each
        alone missing, each prefix; and `samples` more, drawn with the seed.
        """
        yield KILL
        count = self.count
        if count <= EXHAUSTIVE_CHOICES_MAX:
            yield from range(1 << count)
            return
        everything = (1 << count) - 1
        seen = {0, everything}
        for number in range(count):
            seen |= {1 << number, everything & ~(1 << number), (1 << number) - 1}
        yield from sorted(seen)
        dice = random.Random(f"{seed}/{self.number}")  # noqa: S311 - sampling, not cryptography
        for _ in range(samples):
            mask = dice.getrandbits(count)
            if mask not in seen:
                seen.add(mask)
                yield mask

    def disk(self, mask: int) -> tuple[Disk, bytes]:
        """Return the files that the chosen changes leave, by path, and a digest of them."""
        names = dict(self._names)
        for change in self._changes:
            if mask & 1:
                change.apply(names)
            mask >>= 1
        kept: dict[MemoryFile, int] = {}
        for file, choices in self._choices.items():
            kept[file] = mask & ((1 << choices.count()) - 1)
            mask >>= choices.count()
        disk: Disk = {}
        digest = blake2b(digest_size=16)
        for path in sorted(names):
            disk[path], hashed = self._build(names[path], kept[names[path]])
            digest.update(path.encode() + b"\0" + hashed)
        return disk, digest.digest()

    def _build(self, file: MemoryFile, mask: int) -> tuple[bytes, bytes]:
        found = self._built.get((file, mask))
        if found is None:
            data = self._choices[file].build(mask)
            found = self._built[file, mask] = data, blake2b(data, digest_size=16).digest()
        return found

    def copy_to(self, files: MemoryFiles) -> None:
        """Put onto an empty disk what a killed process leaves, all of it as unsynced as it was."""
        copies = {file: choices.copy() for file, choices in self._choices.items()}
        names = {path: copies[file] for path, file in self._names.items()}
        changes = [NameChange(each.old, each.new, copies[each.file]) for each in self._changes]
        files.place(names, changes)

    def describe(self, mask: int) -> str:
        """Return which of the changes under way reached the disk, one word each."""
        if mask == KILL:
            return "the process was killed, the system lives"
        words = []
        for change in self._changes:
            what = f"{change.old or '+'}->{change.new or '-'}"
            words.append(("" if mask & 1 else "not ") + what)
            mask >>= 1
        for file, choices in self._choices.items():
            path = next((name for name, each in self._names.items() if each is file), "new file")
            sectors = [offset for number, (offset, _) in enumerate(choices.sectors)]
            kept = [at for number, at in enumerate(sectors) if mask >> number & 1]
            if sectors:
                words.append(f"{path}: sectors at {kept} of {sectors}")
            if choices.length:
                grown = mask >> len(sectors) & 1
                words.append(f"{path}: {'' if grown else 'not '}{choices.length} bytes long")
            mask >>= choices.count()
        return ", ".join(words) or "nothing was under way"
