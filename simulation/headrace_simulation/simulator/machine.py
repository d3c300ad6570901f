"""A toy state machine: a few registers, and a list whose entries stay live until dropped."""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final, final
from zlib import crc32

from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry

KEYS: Final = 3  # registers

WRITE: Final = 0x77  # "w<id> <key>": the register gets the id
KEEP: Final = 0x6B  # "k<id>": this entry stays live
DROP: Final = 0x64  # "d<id> <count>": that many of the oldest live entries die

_STATE: Final = Struct("<QIQQQ")  # applied index, digest, registers


@final
class Machine:
    """Applies a group's entries in order.

    Attributes:
        applied: index of the last applied entry.
        digest: of everything applied, in order.
        registers: by key, the id of the command that wrote last, 0 for none.
        live: indexes of live entries, ascending.
    """

    def __init__(self) -> None:
        self.applied = 0
        self.digest = 0
        self.registers = [0] * KEYS
        self.live: list[int] = []

    def apply(self, entry: Entry) -> list[int]:
        """Apply one entry; return the indexes that died."""
        data = entry.data
        self.applied = entry.index
        self.digest = crc32(data, crc32(b"%d" % entry.term, self.digest))
        if entry.kind != ENTRY_NORMAL or not data:
            return []
        kind = data[0]
        if kind == KEEP:
            self.live.append(entry.index)
        elif kind == WRITE:
            words = data[1:].split()
            self.registers[int(words[1])] = int(words[0])
        elif kind == DROP:
            count = int(data[1:].split()[1])
            dead = self.live[:count]
            del self.live[:count]
            return dead
        return []

    def state(self) -> bytes:
        """Return the state without the bodies of live entries."""
        one, two, three = self.registers
        return _STATE.pack(self.applied, self.digest, one, two, three)

    def restore(self, state: bytes, live: array[int]) -> None:
        """Become what `state` says."""
        self.applied, self.digest, one, two, three = _STATE.unpack(state)
        self.registers = [one, two, three]
        self.live = list(live)
