"""The status of a PipelineRun, from its driver."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from headrace_operator.builders.driver import CONTAINER, STREAMING
from headrace_operator.specs.pipeline_run import PipelineRunSpec, PipelineRunStatus
from headrace_operator.status_patch import MESSAGE_MAX, conditions_of

Row = dict[str, Any]
Told = tuple[bool, str, str]
Phase = Literal["Pending", "Running", "Suspended", "Succeeded", "Failed"]


class Seen(NamedTuple):
    """Observed state of a driver.

    Attributes:
        phase: what it does.
        message: what is known about it, "" for nothing.
        started_at: when its container began last.
        finished_at: when a job that ends did.
    """

    phase: Phase
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class Problem(NamedTuple):
    """Reason why nothing can be run: a word, and a sentence."""

    reason: str
    message: str


def driver_seen(spec: PipelineRunSpec, job: Row | None, pods: list[Row]) -> Seen:
    """Return what a driver does.

    Args:
        spec: of the run.
        job: the Job, None for a job that goes on, or where it is not there yet.
        pods: of the run.
    """
    newest = max(pods, key=lambda pod: pod["metadata"].get("creationTimestamp") or "", default=None)
    of_pod = _pod_seen(newest) if newest is not None else Seen("Pending", "no pod yet")
    ended = _job_ended(job) if spec.job not in STREAMING else None
    if ended is not None:
        phase, at, said = ended
        by_pod = of_pod.message if newest is not None and phase == "Failed" else ""
        message = by_pod or said
        started = ((job or {}).get("status") or {}).get("startTime")
        return Seen(phase, message, started, at)
    if spec.suspend:
        if newest is None:
            return Seen("Suspended")
        return of_pod._replace(message="the driver is being stopped")
    return of_pod


def _job_ended(job: Row | None) -> tuple[Phase, str | None, str] | None:
    """Return phase, time and sentence of a Job that is over."""
    status = (job or {}).get("status") or {}
    for row in status.get("conditions") or []:
        if row.get("status") == "True" and row.get("type") in ("Complete", "Failed"):
            is_done = row["type"] == "Complete"
            at = status.get("completionTime") or row.get("lastTransitionTime")
            return "Succeeded" if is_done else "Failed", at, str(row.get("message") or "")
    return None


def _pod_seen(pod: Row) -> Seen:
    """Return the state of a pod's container; a restarted one counts as failed meanwhile."""
    status = pod.get("status") or {}
    rows = status.get("containerStatuses") or []
    found = next((row for row in rows if row.get("name") == CONTAINER), None)
    if found is None:
        return Seen("Pending", _why_not_scheduled(status))
    state = found.get("state") or {}
    if "running" in state:
        return Seen("Running", "", state["running"].get("startedAt"))
    ended = state.get("terminated") or (found.get("lastState") or {}).get("terminated")
    if ended:
        said = str(ended.get("message") or "").strip().splitlines()
        text = said[-1] if said else str(ended.get("reason") or "")
        code = ended.get("exitCode")
        message = f"ended with exit code {code}" + (f": {text}" if text else "")
        return Seen("Failed" if code else "Pending", message, ended.get("startedAt"))
    waiting = state.get("waiting") or {}
    parts = [str(waiting[key]) for key in ("reason", "message") if waiting.get(key)]
    return Seen("Pending", ": ".join(parts))


def _why_not_scheduled(status: Row) -> str:
    for row in status.get("conditions") or []:
        if row.get("type") == "PodScheduled" and row.get("status") == "False":
            return str(row.get("message") or row.get("reason") or "")
    return ""


def run_status(
    body: Row, before: PipelineRunStatus, seen: Seen | None, problem: Problem | None, now: datetime
) -> PipelineRunStatus:
    """Return the status; unknown parts keep their values.

    Args:
        body: of the resource.
        before: the status that it has.
        seen: of its driver, None where that was not looked at.
        problem: why nothing can be run.
        now: the time.
    """
    generation = body["metadata"].get("generation", 0)
    phase = seen.phase if seen is not None else before.phase or "Pending"
    message = (seen.message if seen is not None else before.message)[:MESSAGE_MAX]
    failed = phase == "Failed"
    degraded: Told = (failed, "Failed" if failed else "AsExpected", message if failed else "")
    if problem is not None:
        degraded = (True, problem.reason, problem.message)
        message = problem.message[:MESSAGE_MAX]
    conditions = conditions_of(
        list(before.conditions),
        now,
        generation,
        (phase in ("Running", "Succeeded") and problem is None, phase, message),
        (phase == "Pending", phase, message),
        degraded,
    )
    fields: Row = {"observed_generation": generation, "conditions": conditions}
    fields |= {"phase": phase, "message": message}
    if seen is not None:
        fields["started_at"] = seen.started_at or before.started_at
        fields["finished_at"] = seen.finished_at
    return msgspec.structs.replace(before, **fields)
