"""One thing to do, and why."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Action(StrEnum):
    """Action of a step.

    SCALE sets the StatefulSet's replicas. RESTART deletes a pod, which comes again from the wanted
    template (the set's update strategy is OnDelete). DRAIN, REVIVE, GROW and FORGET are asked of
    the broker. DELETE_CLAIM deletes a volume claim. WAIT and NOTHING change nothing.
    """

    SCALE = "Scale"
    DRAIN = "Drain"
    REVIVE = "Revive"
    RESTART = "Restart"
    GROW = "Grow"
    FORGET = "Forget"
    DELETE_CLAIM = "DeleteClaim"
    WAIT = "Wait"
    NOTHING = "Nothing"


class Step(NamedTuple):
    """The next thing to do.

    Attributes:
        action: what.
        subject: the pod's ordinal, or for SCALE the number of pods; -1 where there is none.
        reason: a sentence for people.
        what: of a wait, what is waited for; the same while it is the same wait.
        overdue: of a wait, it has lasted for longer than its bound.
    """

    action: Action
    subject: int = -1
    reason: str = ""
    what: str = ""
    overdue: bool = False
