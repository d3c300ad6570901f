"""Names, meanings and remedies of the classes of bottlenecks."""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace_pipeline.schema.analysis import (
    CONSUMERS_SATURATED,
    DISK_ALARM,
    MEMORY_ALARM,
    POISON_OR_CRASH,
    PREFETCH_OR_SLOW_ACK,
    PUBLISHER_BURST,
    RAFT_COMMIT,
)


class Meaning(NamedTuple):
    """Meaning of a class."""

    label: str  # one word or two, for a strip
    because: str  # what was the matter, after "because"
    remedy: str  # what to do, a sentence without its queue


MEANINGS: Final = {
    MEMORY_ALARM: Meaning(
        "memory alarm",
        "a node's memory alarm stopped publishers",
        "Give the node more memory, or lower what queues may hold (high-watermark-bytes).",
    ),
    DISK_ALARM: Meaning(
        "disk alarm",
        "a node's disk alarm stopped publishers",
        "Free or add disk, or shorten what archives and backlogs keep.",
    ),
    RAFT_COMMIT: Meaning(
        "replication",
        "its replicas did not commit faster",
        "More consumers will not help: spread the load over more queues, or give the leader's "
        "node a faster disk.",
    ),
    CONSUMERS_SATURATED: Meaning(
        "consumers",
        "its consumers were busy all the time, or there were none",
        "Add consumers, or make them faster.",
    ),
    PREFETCH_OR_SLOW_ACK: Meaning(
        "slow acks",
        "its consumers held all that they may and acknowledged late",
        "Raise the consumers' prefetch, or have them acknowledge sooner.",
    ),
    POISON_OR_CRASH: Meaning(
        "failures",
        "deliveries failed and came back",
        "Look at what is dead-lettered there and why its consumers fail; more will not help.",
    ),
    PUBLISHER_BURST: Meaning(
        "burst",
        "more was published in bursts than it takes in",
        "Limit the rate of who brings the bursts (publish-rate), or lower its fan-out.",
    ),
}


def meaning(name: str) -> Meaning:
    """Return that of a class, that of a later release in its own words."""
    words = name.replace("_", " ")
    return MEANINGS.get(name) or Meaning(words, words, f"Look up {words} in the documentation.")


def css(name: str) -> str:
    """Return the class of its colour."""
    return f"c-{name}" if name in MEANINGS else "c-other"
