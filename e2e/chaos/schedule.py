"""Schedule of faults, decided by a seed before a run begins.

Which nodes a fault hits is part of the schedule, but for LEADER, which is whoever leads a queue
when the fault is injected.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

LEADER: Final = 0  # in place of a node's number
FLAPS: Final = 5  # faults in one flapping
Link = tuple[int, int]  # from, to; one direction


class Kill(NamedTuple):
    """SIGKILL, all at once; started again when the step ends."""

    nodes: tuple[int, ...]


class Restart(NamedTuple):
    """SIGKILL, and started again at once, whatever else goes on."""

    nodes: tuple[int, ...]


class KillShard(NamedTuple):
    """SIGKILL of one process of each node; their supervisors start them again.

    Attributes:
        nodes: whose; of LEADER it is the process that leads.
        shard: number of the process.
    """

    nodes: tuple[int, ...]
    shard: int


class PauseShard(NamedTuple):
    """SIGSTOP of one process of each node, until the step ends; see KillShard."""

    nodes: tuple[int, ...]
    shard: int


class WipeShard(NamedTuple):
    """SIGKILL of a node, and an empty disk of one of its processes; started when the step ends.

    Attributes:
        shard: number of the process.
    """

    node: int
    shard: int


class Drain(NamedTuple):
    """Drain a node, or one of its processes; revived when the step ends.

    Attributes:
        shard: number of the process, not the first one; None for all of them.
    """

    node: int
    shard: int | None


class Pause(NamedTuple):
    """SIGSTOP, until the step ends."""

    nodes: tuple[int, ...]


class Cut(NamedTuple):
    """Links that drop everything until the step ends."""

    links: tuple[Link, ...]


class Isolate(NamedTuple):
    """Cut a node from all others: its outgoing packets, incoming ones, or both."""

    node: int
    sends: bool
    receives: bool


class Slow(NamedTuple):
    """Each sync of these nodes' disks takes longer until the step ends."""

    nodes: tuple[int, ...]
    delay_ms: int


class Wipe(NamedTuple):
    """SIGKILL and an empty disk, twice in a row; started again when the step ends.

    Attributes:
        between: seconds that the node runs on its first empty disk.
    """

    nodes: tuple[int, ...]
    between: float


class Restore(NamedTuple):
    """Copy the data, run on for a while, SIGKILL, and put the copy in place of the data.

    Attributes:
        between: seconds from the copy to the kill, in which the nodes promise more.
    """

    nodes: tuple[int, ...]
    between: float


class Truncate(NamedTuple):
    """SIGKILL, and a log without its end; started again when the step ends.

    Attributes:
        sectors: of 512 bytes that are zeroed; 0 to remove the newest segment.
    """

    nodes: tuple[int, ...]
    sectors: int


class Rot(NamedTuple):
    """SIGKILL, and a flipped bit in a message of another queue on each of these nodes."""

    nodes: tuple[int, ...]


class SetClock(NamedTuple):
    """Wall clocks that jump by so much, and back when the step ends."""

    nodes: tuple[int, ...]
    shift_ms: int


class Throttle(NamedTuple):
    """Links of these nodes that carry so much in each direction until the step ends."""

    nodes: tuple[int, ...]
    kbit: int


class Replace(NamedTuple):
    """Drain and stop a node; started as another build on its data, and revived, at the step's end.

    Attributes:
        python: the interpreter in whose environment the other build is.
    """

    node: int
    python: str


Fault = (
    Kill
    | KillShard
    | PauseShard
    | WipeShard
    | Drain
    | Restart
    | Pause
    | Cut
    | Isolate
    | Slow
    | Wipe
    | Restore
    | Truncate
    | Rot
    | SetClock
    | Throttle
    | Replace
)


class Step(NamedTuple):
    """Faults that are injected one after the other, held, and ended together.

    Attributes:
        gap: seconds between two injections.
        hold: seconds from the last injection to the end.
        settle: seconds of health before the next step, beyond what the cluster needs to serve;
            0 for a next step at once, whether the cluster serves or not.
    """

    kind: str
    faults: tuple[Fault, ...]
    gap: float
    hold: float
    settle: float

    def __str__(self) -> str:
        faults = ", ".join(str(each) for each in self.faults)
        return f"{self.kind} for {self.hold:.1f} s: {faults}"


KINDS: Final = (
    "kill",
    "kill-leader",
    "pause-leader",
    "pause",
    "isolate-leader",
    "one-way",
    "bridge",
    "split",
    "slow-disk",
    "stall-leader",
    "kill-all",
    "flap",
    "restart-in-split",
    "pause-and-kill",
    "wipe-twice",
    "stale-copy",
    "truncate",
    "hang-disk",
    "rot",
    "clock-jump",
    "slow-link",
)
# Of nodes that have several processes.
SHARD_KINDS: Final = (
    "kill-shard",
    "kill-leading-shard",
    "kill-shards",
    "pause-shard",
    "wipe-shard",
    "drain",
    "drain-shard",
)
HANG_MS: Final = 3_600_000  # of a sync, unless the step ends it
# Longer than a node waits before it hands over what it leads.
HANG_SECONDS: Final = (12.0, 25.0)

# A mix of everything that fits into a short run; the rest takes long to recover from.
SHORT_KINDS: Final = ("kill-leader", "pause-leader", "isolate-leader", "one-way", "bridge")
SHORT_SHARD_KINDS: Final = ("kill-leading-shard", "kill", "pause-shard", "split", "drain")


def kinds_of(shards: int) -> tuple[str, ...]:
    """Return the kinds of steps that nodes of so many processes can bear."""
    return KINDS if shards == 1 else (*KINDS, *SHARD_KINDS)


def make_schedule(
    seed: int, count: int, steps: int, kinds: Sequence[str] = KINDS, shards: int = 1
) -> list[Step]:
    """Return the steps that a seed means for a cluster of `count` nodes of so many processes.

    Every kind comes before any comes again. A flapping counts as one step but is several.
    """
    draw = random.Random(f"{seed} {count}")
    order: list[str] = []
    while len(order) < steps:
        order += draw.sample(kinds, len(kinds))
    made: list[Step] = []
    for kind in order[:steps]:
        flaps = kind == "flap"
        made += make_flapping(draw, count) if flaps else [make_step(kind, draw, count, shards)]
    return made


def make_flapping(draw: random.Random, count: int) -> list[Step]:
    """Return short faults that follow each other before the cluster has recovered."""
    made: list[Step] = []
    for _ in range(FLAPS):
        node = draw.randint(1, count)
        fault = draw.choice((Kill((node,)), Isolate(node, True, True), Pause((node,))))
        made.append(Step("flap", (fault,), 0.0, draw.uniform(0.2, 1.5), 0.0))
    return [*made[:-1], made[-1]._replace(settle=1.0)]


def make_step(kind: str, draw: random.Random, count: int, shards: int = 1) -> Step:
    """Return a step of a kind, its victims and times drawn at random.

    A minority is one of nodes, however many processes they have.
    """
    nodes = draw.sample(range(1, count + 1), count)
    minority = tuple(nodes[: (count - 1) // 2])
    faults: tuple[Fault, ...]
    match kind:
        case "kill":
            faults = (Kill(minority[: draw.randint(1, len(minority))]),)
        case "kill-leader":
            faults = (Kill((LEADER,)),)
        case "pause":
            faults = (Pause(minority),)
        case "pause-leader":
            faults = (Pause((LEADER,)),)
        case "isolate-leader":
            faults = (Isolate(LEADER, sends=True, receives=True),)
        case "one-way":
            sends = draw.random() < 0.5
            faults = (Isolate(draw.choice([LEADER, *nodes]), sends, not sends),)
        case "bridge":
            faults = (Cut(bridge(nodes)),)
        case "split":
            faults = (Cut(split(nodes[: count // 2], nodes[count // 2 :])),)
        case "slow-disk" | "stall-leader" | "hang-disk":
            faults = (make_slow(kind, draw, minority),)
        case "kill-all":
            faults = (Kill(tuple(nodes)),)
        case "restart-in-split":
            faults = (Cut(split(nodes[:1], nodes[1:])), Restart(tuple(nodes[:1])))
        case "pause-and-kill":
            faults = (Pause((LEADER,)), Slow(minority, 100), Kill(minority[:1]))
        case "rot" | "clock-jump" | "slow-link":
            faults = (make_wrong(kind, draw, nodes),)
        case _:
            faults = (make_special(kind, draw, nodes, shards),)
    gap, hold, settle = draw.uniform(0.1, 1.0), draw.uniform(2.5, 5.0), draw.uniform(0.2, 1.0)
    if kind == "hang-disk":
        hold = draw.uniform(*HANG_SECONDS)
    return Step(kind, faults, gap, hold, settle)


def make_wrong(kind: str, draw: random.Random, nodes: Sequence[int]) -> Fault:
    """Return a fault that a cluster mends or bears wherever it strikes."""
    match kind:
        case "rot":
            return Rot(tuple(nodes[:2]))
        case "clock-jump":
            victims = tuple(nodes[: draw.choice((1, len(nodes)))])
            return SetClock(victims, draw.choice((-1, 1)) * draw.randint(1000, 600_000))
        case _:
            return Throttle(tuple(nodes[:1]), draw.choice((256, 1000, 4000)))


def make_special(kind: str, draw: random.Random, nodes: Sequence[int], shards: int) -> Fault:
    """Return a fault of processes or of data."""
    if kind not in SHARD_KINDS:
        return make_fault_of_data(kind, draw, tuple(nodes[:1]))
    shard = draw.randrange(shards)
    match kind:
        case "kill-shard":
            return KillShard(tuple(nodes[:1]), shard)
        case "kill-leading-shard":
            return KillShard((LEADER,), shard)
        case "kill-shards":
            return KillShard(tuple(nodes), shard)
        case "pause-shard":
            return PauseShard((draw.choice([LEADER, *nodes]),), shard)
        case "wipe-shard":
            return WipeShard(nodes[0], shard)
        case "drain":
            return Drain(nodes[0], None)
        case _:
            return Drain(nodes[0], shard or shards - 1)  # the first one's name is the node's


def make_slow(kind: str, draw: random.Random, minority: tuple[int, ...]) -> Slow:
    """Return a fault of disks that lose nothing."""
    match kind:
        case "slow-disk":
            return Slow(minority, draw.choice((20, 100, 400)))
        case "stall-leader":
            return Slow((LEADER,), 60_000)
        case _:
            return Slow(draw.choice(((LEADER,), minority)), HANG_MS)


def make_fault_of_data(kind: str, draw: random.Random, victim: tuple[int, ...]) -> Fault:
    """Return a fault that takes promises back.

    It may hit one node only: queues have three replicas, however many nodes there are.
    """
    match kind:
        case "wipe-twice":
            return Wipe(victim, draw.uniform(0.2, 8.0))
        case "stale-copy":
            return Restore(victim, draw.uniform(1.0, 8.0))
        case "truncate":
            return Truncate(victim, draw.choice((0, 1, 20, 400)))
        case _:
            raise ValueError(f"no such kind of step: {kind}")


def split(left: Sequence[int], right: Sequence[int]) -> tuple[Link, ...]:
    """Return the links between two sides, in both directions."""
    return tuple(link for a in left for b in right for link in ((a, b), (b, a)))


def bridge(nodes: Sequence[int]) -> tuple[Link, ...]:
    """Return cuts that leave two halves in touch only with themselves and one node."""
    half = len(nodes) // 2
    return split(nodes[:half], nodes[half + 1 :])
