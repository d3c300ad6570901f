"""Status of a driver, from its pod and Job."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace_operator.handlers.run_status import Seen, driver_seen
from headrace_operator.specs.pipeline_run import PipelineRunSpec

AT = "2026-01-02T03:04:05Z"


def spec(job: str = "archive", **more: Any) -> PipelineRunSpec:
    given = {"clusterRef": {"name": "mill"}, "job": job, "image": "i", **more}
    return msgspec.convert(given, PipelineRunSpec)


def pod(at: str = AT, last: Any = None, conditions: Any = None, **state: Any) -> dict[str, Any]:
    row = {"name": "driver", "state": state, "lastState": last or {}}
    status = {"containerStatuses": [row] if state else [], "conditions": conditions or []}
    return {"metadata": {"creationTimestamp": at}, "status": status}


def job(kind: str, **more: Any) -> dict[str, Any]:
    row = {"type": kind, "status": "True", "lastTransitionTime": AT, "message": "said"}
    return {"status": {"conditions": [row], "startTime": "2026-01-01T00:00:00Z", **more}}


def failed(message: str, code: int = 1) -> dict[str, Any]:
    return {"exitCode": code, "message": message, "startedAt": AT}


@pytest.mark.parametrize(
    ("pods", "seen"),
    [
        ([], Seen("Pending", "no pod yet")),
        ([pod(running={"startedAt": AT})], Seen("Running", "", AT)),
        ([pod(waiting={"reason": "ErrImagePull"})], Seen("Pending", "ErrImagePull")),
        (
            [pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "no room"}])],
            Seen("Pending", "no room"),
        ),
        ([pod(terminated=failed("a\nb\n"))], Seen("Failed", "ended with exit code 1: b", AT)),
        (
            [pod(waiting={"reason": "CrashLoopBackOff"}, last={"terminated": failed("b", 2)})],
            Seen("Failed", "ended with exit code 2: b", AT),
        ),
        ([pod(terminated=failed("", 0))], Seen("Pending", "ended with exit code 0", AT)),
    ],
)
def test_a_job_that_goes_on_is_as_its_pod_is(pods: list[Any], seen: Seen) -> None:
    assert driver_seen(spec(), None, pods) == seen


def test_of_several_pods_the_newest_counts() -> None:
    old = pod("2026-01-01T00:00:00Z", terminated=failed("x"))
    found = driver_seen(spec("report"), None, [pod(running={"startedAt": AT}), old])
    assert found.phase == "Running"


def test_a_job_that_is_over_is_as_kubernetes_says() -> None:
    done = driver_seen(spec("report"), job("Complete", completionTime="2026-02-01T00:00:00Z"), [])
    assert done == Seen("Succeeded", "said", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")
    lost = driver_seen(spec("report"), job("Failed"), [])
    assert lost == Seen("Failed", "said", "2026-01-01T00:00:00Z", AT)
    why = driver_seen(spec("report"), job("Failed"), [pod(terminated=failed("no table"))])
    assert why.message == "ended with exit code 1: no table"


def test_what_is_suspended_is_so_once_its_pod_has_gone() -> None:
    assert driver_seen(spec(suspend=True), None, []) == Seen("Suspended")
    found = driver_seen(spec(suspend=True), None, [pod(running={"startedAt": AT})])
    assert (found.phase, found.message) == ("Running", "the driver is being stopped")
    assert driver_seen(spec("report", suspend=True), job("Complete"), []).phase == "Succeeded"
