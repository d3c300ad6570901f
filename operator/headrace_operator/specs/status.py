"""Common part of every status: the observed generation, and conditions.

Conditions follow Kubernetes' own: `Ready`, `Progressing`, `Degraded`, each with a reason.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, field

from headrace_operator.specs.field import Spec, keyed

READY: Final = "Ready"
PROGRESSING: Final = "Progressing"
DEGRADED: Final = "Degraded"
CONDITIONS: Final = (READY, PROGRESSING, DEGRADED)

Timestamp = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class Condition(Spec, frozen=True, kw_only=True):
    """One condition.

    Attributes:
        type: what it is about.
        status: whether it holds.
        reason: one word for programs.
        message: a sentence for people.
        last_transition_time: when `status` changed last.
        observed_generation: generation of the resource that it is about.
    """

    type: Annotated[str, Meta(min_length=1, max_length=316)]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[
        str, Meta(min_length=1, max_length=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    ]
    message: Annotated[str, Meta(max_length=32768)] = ""
    last_transition_time: Timestamp
    observed_generation: Annotated[int, Meta(ge=0)] = 0


Conditions = Annotated[list[Condition], keyed("type"), Meta(max_length=16)]


class Status(Spec, frozen=True, kw_only=True):
    """Common part of every status.

    Attributes:
        observed_generation: generation of the spec that was last acted upon.
        conditions: `Ready`, `Progressing` and `Degraded`.
    """

    observed_generation: Annotated[int, Meta(ge=0)] | None = None
    conditions: Conditions = field(default_factory=list)


def with_condition(conditions: list[Condition], wanted: Condition) -> list[Condition]:
    """Return conditions with one of them changed; its time stays where its status does.

    Args:
        conditions: those that the status has.
        wanted: the new one, with the time of now.
    """
    current = next((each for each in conditions if each.type == wanted.type), None)
    if current is not None and current.status == wanted.status:
        wanted = Condition(
            type=wanted.type,
            status=wanted.status,
            reason=wanted.reason,
            message=wanted.message,
            last_transition_time=current.last_transition_time,
            observed_generation=wanted.observed_generation,
        )
    if current is None:
        return [*conditions, wanted]
    return [wanted if each.type == wanted.type else each for each in conditions]
