"""Reads that wait, and the rounds of heartbeats that confirm them."""

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
    """All reads under way at one member."""

    def __init__(self) -> None:
        self.count: i64 = 0  # reads that wait here, bounded by READS_WAITING_MAX
        self.gathered: list[Read] = []  # a leader's reads for the next round
        self.rounds: list[Round] = []  # rounds not confirmed yet, oldest first
        # a follower's questions to its leader, context -> tick of the question, oldest first
        self.forwarded: dict[int, int] = {}
        self.asked: i64 = 0  # who leads the term, and was asked last
        self.ticks: i64 = 0  # counts while a follower's questions wait
        self.states: list[tuple[int, int]] = []  # (context, index) to be handed out
        self.lost: list[int] = []  # contexts to be handed out as lost
