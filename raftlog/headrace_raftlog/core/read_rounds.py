"""Pending reads, and the rounds of heartbeats that confirm them."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64


@final
class Read:
    """One question: asked by `source` (this member or a follower) under `context`."""

    def __init__(self, source: i64, context: i64) -> None:
        self.source = source
        self.context = context


@final
class Round:
    """Reads that one round of heartbeats confirms, at the commit index when it began."""

    def __init__(self, number: i64, index: i64, reads: list[Read]) -> None:
        self.number = number
        self.index = index
        self.reads = reads


@final
class Reads:
    """All reads under way at one member.

    Attributes:
        count: reads that wait here, bounded by READS_WAITING_MAX.
        gathered: a leader's reads for the next round.
        rounds: rounds not confirmed yet, oldest first.
        forwarded: a follower's questions to its leader, context -> tick of the question, oldest
            first.
        ticks: counts while a follower's questions wait.
        states: (context, index) to be handed out.
        lost: contexts to be handed out as lost.
    """

    def __init__(self) -> None:
        self.count: i64 = 0
        self.gathered: list[Read] = []
        self.rounds: list[Round] = []
        self.forwarded: dict[int, int] = {}
        self.ticks: i64 = 0
        self.states: list[tuple[int, int]] = []
        self.lost: list[int] = []
