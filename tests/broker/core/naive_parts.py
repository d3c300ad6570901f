"""Parts of the naive queue."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace_broker.codecs.batch import slice_batch

Place = tuple[int, int]  # session and consumer


@dataclass
class Message:
    number: int
    entry: int
    position: int
    byte_count: int
    arrived: int
    ttl: int = -1  # from arrival or the end of its delay on
    priority: int = 0
    kind: str = ""  # "group", "last", "fair"
    key: int = 0
    line: bytes = b""  # with what it takes turns
    acquired: int = 0
    failed: int = 0
    due: int = 0
    taken: int = 0  # when it was delivered last, 0 when it came back since
    first: int = 0  # and first, as far as that is known

    def expired(self, now: int) -> bool:
        return self.ttl >= 0 and self.arrived + self.ttl <= now


@dataclass
class Receiver:
    place: Place
    prefetch: int = 0
    byte_count: int = 0
    exclusive: bool = False
    filtered: bool = False
    priority: int = 0
    timeout: int = 0
    state: str = "cancelled"
    turn: int = 0
    given: int = 0
    held: dict[int, tuple[Message, int]] = field(default_factory=dict)

    def credit(self) -> int:
        used = sum(message.byte_count for message, _ in self.held.values())
        if self.state != "attached" or (self.byte_count and used >= self.byte_count):
            return 0
        return max(self.prefetch - len(self.held), 0)


@dataclass
class Session:
    published: int = 0
    controlled: int = 0
    refusals: list[tuple[int, int, int]] = field(default_factory=list)
    answers: dict[int, tuple[int, int, int]] = field(default_factory=dict)


@dataclass
class Told:
    """Effects of a command, in a form in which order matters only where it must."""

    delivered: dict[Place, list[tuple[int, ...]]] = field(default_factory=dict)
    dead: set[tuple[str, int, int, int]] = field(default_factory=set)
    answers: list[tuple[object, ...]] = field(default_factory=list)
    deferred: dict[int, set[int]] = field(default_factory=dict)
    completed: dict[int, set[int]] = field(default_factory=dict)


def property_block(batch: bytes, position: int) -> bytes:
    single = slice_batch(batch, 0, [position])
    at = 8 + 1 + single[8]
    at += 1 + single[at]
    length = int.from_bytes(single[at : at + 4], "big")
    return single[at + 4 : at + 4 + length]


def read_properties(block: bytes) -> tuple[int, int, dict[str, int]]:
    """Return priority, expiration (-1 for none) and integer headers of a block of the tests."""
    flags, at = int.from_bytes(block[:2], "big"), 2
    headers: dict[str, int] = {}
    if flags & 0x2000:
        stop = at + 4 + int.from_bytes(block[at : at + 4], "big")
        at += 4
        while at < stop:
            size = block[at]
            name = block[at + 1 : at + 1 + size].decode()
            at += 1 + size
            headers[name] = int.from_bytes(block[at + 1 : at + 5], "big", signed=True)
            at += 5
    priority = -1
    if flags & 0x0800:
        priority, at = block[at], at + 1
    expiration = -1
    if flags & 0x0100:
        expiration = int(block[at + 1 : at + 1 + block[at]])
    return priority, expiration, headers
