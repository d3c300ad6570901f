"""Verdicts of TLC on exported histories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from e2e.judge import tlc
from e2e.judge.data_module import messages_module, names_module
from e2e.judge.operations import Event


class Judgement(msgspec.Struct, frozen=True):
    """Verdict on a history; the text says where a rejected one ends."""

    accepted: bool
    text: str


def judge_messages(events: Sequence[Event], directory: Path) -> Judgement:
    """Check what queues promise; see spec/Messages.tla."""
    found = tlc.check("Messages", directory, {"Data": messages_module(events)})
    if found.finished:
        return Judgement(True, "messages: accepted")
    queue, at = (tlc.last_value(found.text, name) for name in ("queue", "at"))
    place = f"queue {queue} in order of names, after {at - 1} deliveries"
    return Judgement(False, f"messages: rejected at {place}")


def judge_names(events: Sequence[Event], directory: Path) -> Judgement:
    """Check that the catalog is linearizable; see spec/Names.tla."""
    data = {"Data": names_module(events)}
    found = tlc.check("Names", directory, data, invariant="NotAccepted")
    if found.violated:
        return Judgement(True, "names: accepted, TLC found a linearization of each")
    return Judgement(False, "names: rejected, a name has no linearization")
