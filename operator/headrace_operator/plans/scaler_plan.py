"""Wanted number of consumers, from backlog, alarms and advice.

Up goes at once, by steps, and not twice within one window; down goes late, by steps, to the most
that was wanted within a window, and not until some time after the last alarm. So however alarms
come and go, replicas do not follow them down.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace_operator.specs.scaler import ConsumerScalerSpec

STAGE_PAGING: Final = 1  # bodies leave memory
STAGE_BLOCKED: Final = 2  # publishers are blocked
WISHES_MAX: Final = 64  # that are remembered; of more, higher ones are kept for longer

BACKLOG: Final = "Backlog"
ALARM_STAGE_1: Final = "AlarmStage1"
ALARM_STAGE_2: Final = "AlarmStage2"
ADVICE: Final = "Advice"
IDLE: Final = "Idle"
BOUNDS: Final = "Bounds"
STEADY: Final = ""


class Load(NamedTuple):
    """Observed load.

    Attributes:
        now: Unix time in seconds.
        replicas: that the target is told to have.
        backlog: messages that wait in all of its queues.
        alarm_stage: of the cluster, 0 for none.
        advised: consumers that the pipeline advises; None without advice that is valid.
    """

    now: float
    replicas: int
    backlog: int
    alarm_stage: int = 0
    advised: int | None = None


class Memory(NamedTuple):
    """State of the decisions besides the observation; it is kept in the status.

    Attributes:
        changed_at: time of the last change, None before the first.
        alarm_seen_at: time of the last look at which there was an alarm, None for never.
        wishes: times and numbers that were wanted then, those that a later and higher one has made
            void left out.
    """

    changed_at: float | None = None
    alarm_seen_at: float | None = None
    wishes: tuple[tuple[float, int], ...] = ()


class Verdict(NamedTuple):
    """Decision of the scaler.

    Attributes:
        replicas: that the target is to have.
        wanted: that would be enough, before windows and steps.
        reason: why it changes, STEADY when it does not.
        message: a sentence with the figures.
        memory: for the next decision.
    """

    replicas: int
    wanted: int
    reason: str
    message: str
    memory: Memory


def decide(spec: ConsumerScalerSpec, load: Load, memory: Memory) -> Verdict:
    """Decide how many consumers there are to be."""
    wanted, reason = _wanted(spec, load)
    alarm_seen_at = load.now if load.alarm_stage else memory.alarm_seen_at
    wishes = _remembered(memory.wishes, load.now, wanted, spec.stabilization.scale_down_seconds)
    known = Memory(memory.changed_at, alarm_seen_at, wishes)
    within = min(max(load.replicas, spec.min_replicas), spec.max_replicas)
    if within != load.replicas:
        replicas, reason, why = within, BOUNDS, "the spec allows no other number"
    elif wanted > load.replicas:
        replicas, why = _up(spec, load, known, wanted, reason)
    elif wanted < load.replicas:
        replicas, why = _down(spec, load, known)
        reason = IDLE
    else:
        replicas, why = load.replicas, "enough"
    if replicas == load.replicas:
        return Verdict(replicas, wanted, STEADY, _sentence(load, wanted, replicas, why), known)
    known = known._replace(changed_at=load.now)
    return Verdict(replicas, wanted, reason, _sentence(load, wanted, replicas, why), known)


def _wanted(spec: ConsumerScalerSpec, load: Load) -> tuple[int, str]:
    per_consumer, reason = spec.backlog_per_consumer, BACKLOG
    paging = load.alarm_stage >= STAGE_PAGING and spec.alarm_reaction.paging == "Proportional"
    if paging:
        reason = ALARM_STAGE_1
    wanted = -(-load.backlog * (2 if paging else 1) // per_consumer)
    if spec.use_advice and load.advised is not None and load.advised > wanted:
        wanted, reason = load.advised, ADVICE
    if load.alarm_stage >= STAGE_BLOCKED and spec.alarm_reaction.blocked != "Ignore":
        is_max = spec.alarm_reaction.blocked == "Max"
        urgent = spec.max_replicas if is_max else load.replicas + spec.step
        if urgent > wanted:
            wanted, reason = urgent, ALARM_STAGE_2
    return min(max(wanted, spec.min_replicas), spec.max_replicas), reason


def _up(
    spec: ConsumerScalerSpec, load: Load, memory: Memory, wanted: int, reason: str
) -> tuple[int, str]:
    left = _left(memory.changed_at, spec.stabilization.scale_up_seconds, load.now)
    if left > 0:
        return load.replicas, f"the number changed a moment ago, more in {left:.0f} s"
    at_once = reason == ALARM_STAGE_2 and spec.alarm_reaction.blocked == "Max"
    return (wanted if at_once else min(wanted, load.replicas + spec.step)), "more are needed"


def _down(spec: ConsumerScalerSpec, load: Load, memory: Memory) -> tuple[int, str]:
    windows = spec.stabilization
    if load.alarm_stage:
        return load.replicas, "none is taken away during an alarm"
    left = _left(memory.alarm_seen_at, windows.cooldown_seconds, load.now)
    if left > 0:
        return load.replicas, f"an alarm was over a moment ago, fewer in {left:.0f} s"
    left = _left(memory.changed_at, windows.scale_down_seconds, load.now)
    if left > 0:
        return load.replicas, f"the number changed a moment ago, fewer in {left:.0f} s"
    most = max(replicas for _, replicas in memory.wishes)
    if most >= load.replicas:
        window = windows.scale_down_seconds
        return load.replicas, f"{most} were wanted within the last {window} s"
    return max(most, load.replicas - spec.step), "fewer are enough"


def _left(since: float | None, window: float, now: float) -> float:
    """Return the seconds left of a window, which a clock that was set back does not stretch."""
    return min(since + window - now, window) if since is not None else 0.0


def _remembered(
    wishes: tuple[tuple[float, int], ...], now: float, wanted: int, window: float
) -> tuple[tuple[float, int], ...]:
    kept = [each for each in wishes if now - window <= each[0] <= now and each[1] > wanted]
    if len(kept) >= WISHES_MAX:
        del kept[len(kept) // 2]
    return (*kept, (now, wanted))


def _sentence(load: Load, wanted: int, replicas: int, why: str) -> str:
    figures = [f"{load.backlog} messages wait"]
    if load.alarm_stage:
        figures.append(f"alarm of stage {load.alarm_stage}")
    if load.advised is not None:
        figures.append(f"{load.advised} advised")
    went = f"{load.replicas} -> {replicas}" if replicas != load.replicas else f"{replicas} stay"
    return f"{went}: {', '.join(figures)}; {wanted} wanted; {why}"
