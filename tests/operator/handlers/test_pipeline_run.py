"""Jobs of the pipeline are run, against an API server that has no machines for them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.operator.handlers.kube_server import KubeServer, Name, Object, Store, condition
from tests.operator.handlers.world import (
    GROUP,
    World,
    degraded,
    is_ready,
    one_node,
    running,
    that,
    told,
)

from headrace_sparkdriver.driver import Driver

RUNS: Final = f"{GROUP}/pipelineruns"
CLUSTERS: Final = f"{GROUP}/brokerclusters"
SETS: Final = "apps/v1/statefulsets"
JOBS: Final = "batch/v1/jobs"
RUN: Final = Name(RUNS, "shop", "nightly")
DRIVER: Final = "nightly-driver"
LABELS: Final = Driver("nightly", "shop", "archive", "", "").selector


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with one_node(tmp_path, monkeypatch) as found:
        yield found


def run_of(job: str, **spec: Any) -> Object:
    reference = {"clusterRef": {"name": "mill"}, "image": "headrace/pipeline:1"}
    return {"spec": {**reference, "job": job, **spec}}


def exists(resource: str, name: str = DRIVER) -> Any:
    return that(Name(resource, "shop", name), lambda found: found is not None)


def phase(wanted: str) -> Any:
    return that(RUN, lambda found: _status(found).get("phase") == wanted)


def _status(found: Object | None) -> Object:
    return (found or {}).get("status") or {}


def secret(**values: str) -> Object:
    return {"data": {key: b64encode(value.encode()).decode() for key, value in values.items()}}


def pod(server: KubeServer, **state: Any) -> None:
    """Set the state of the driver's container."""
    status = {"containerStatuses": [{"name": "driver", "state": state}]}
    name = Name("v1/pods", "shop", f"{DRIVER}-0")

    def act(store: Store) -> None:
        if name not in store.objects:
            store.create(name, {"metadata": {"labels": LABELS}})
        store.patch(name, "status", "merge", {"status": status})

    server.do(act)


def job_ends(server: KubeServer, kind: str) -> None:
    at = "2026-01-02T03:04:05Z"
    row = {"type": kind, "status": "True", "lastTransitionTime": at, "message": "three tries"}
    status = {"conditions": [row], "startTime": at}
    body = {"status": status}
    server.do(lambda store: store.patch(Name(JOBS, "shop", DRIVER), "status", "merge", body))


def test_a_job_that_goes_on_is_one_pod_that_follows_its_run(world: World) -> None:
    server, _ = world
    server.create(RUNS, "nightly", run_of("archive", options={"table": "/data/archive"}))
    with running():
        found = server.wait("the driver", exists(SETS))
        assert found["spec"]["replicas"] == 1
        [container] = found["spec"]["template"]["spec"]["containers"]
        assert container["args"] == ["run", "archive", "--table=/data/archive"]
        values = {row["name"]: row.get("value") for row in container["env"]}
        assert values["HEADRACE_ENDPOINTS"] == "mill.shop.svc:7672"
        assert server.names("v1/services").count(DRIVER) == 1
        assert "nightly-data" in server.names("v1/persistentvolumeclaims")
        server.wait("no pod yet", phase("Pending"))
        pod(server, running={"startedAt": "2026-01-02T03:04:05Z"})
        status = _status(server.wait("that it runs", that(RUN, is_ready)))
        assert (status["phase"], status["startedAt"]) == ("Running", "2026-01-02T03:04:05Z")
        server.merge(RUNS, "nightly", {"spec": {"suspend": True}})
        name = Name(SETS, "shop", DRIVER)
        server.wait("no driver", that(name, lambda each: each and not each["spec"]["replicas"]))
        server.delete("v1/pods", f"{DRIVER}-0")
        server.wait("that it is suspended", phase("Suspended"))


def test_what_a_driver_said_last_stands_in_the_status(world: World) -> None:
    server, _ = world
    server.create(RUNS, "nightly", run_of("flow"))
    with running():
        server.wait("the driver", exists(SETS))
        text = "2026 WARN x\nheadrace-pipeline: option tables: flow needs it\n"
        pod(server, terminated={"exitCode": 2, "message": text})
        found = server.wait("the failure", phase("Failed"))
        said = "ended with exit code 2: headrace-pipeline: option tables: flow needs it"
        assert _status(found)["message"] == said
        assert condition(found, "Degraded") == "True"
        server.wait("the event", told("Failed"))
        assert ("Failed", said) in server.events()
        pod(server, running={"startedAt": "2026-01-02T03:04:05Z"})
        server.wait("that it runs again", that(RUN, is_ready))


def test_a_job_that_has_ended_is_left_alone(world: World) -> None:
    server, _ = world
    server.create(RUNS, "nightly", run_of("report"))
    with running():
        made = server.wait("the job", exists(JOBS))
        job_ends(server, "Complete")
        found = server.wait("its end", phase("Succeeded"))
        assert is_ready(found)
        assert _status(found)["finishedAt"] == "2026-01-02T03:04:05Z"
        server.merge(RUNS, "nightly", {"spec": {"options": {"days": "3"}}})
        server.wait("another look", that(RUN, lambda each: is_ready(each) and _seen(each, 2)))
        uid = made["metadata"]["uid"]
        assert (server.get(JOBS, DRIVER) or {})["metadata"]["uid"] == uid
        assert SETS not in [name for name in server.names(SETS) if name == DRIVER]


def _seen(found: Object | None, generation: int) -> bool:
    return bool(_status(found).get("observedGeneration") == generation)


def test_a_job_that_is_changed_before_it_ends_is_made_anew(world: World) -> None:
    server, _ = world
    server.create(RUNS, "nightly", run_of("compact"))
    with running():
        first = server.wait("the job", exists(JOBS))
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": DRIVER}
        owner["uid"] = first["metadata"]["uid"]
        meta = {"labels": LABELS, "ownerReferences": [owner]}
        server.create("v1/pods", f"{DRIVER}-x", {"metadata": meta})
        server.merge(RUNS, "nightly", {"spec": {"options": {"days": "3"}}})
        other = that(
            Name(JOBS, "shop", DRIVER),
            lambda each: each is not None and each["metadata"]["uid"] != first["metadata"]["uid"],
        )
        found = server.wait("another job", other)
        assert "--days=3" in found["spec"]["template"]["spec"]["containers"][0]["args"]
        assert server.get("v1/pods", f"{DRIVER}-x") is None
        uid = found["metadata"]["uid"]
        server.merge(RUNS, "nightly", {"spec": {"suspend": True}})
        held = that(Name(JOBS, "shop", DRIVER), lambda each: each and each["spec"]["suspend"])
        assert server.wait("that it is held", held)["metadata"]["uid"] == uid
        job_ends(server, "Failed")
        failed = server.wait("its failure", phase("Failed"))
        assert _status(failed)["message"] == "three tries"


def test_nothing_is_made_before_its_secret_is_there(world: World) -> None:
    server, _ = world
    server.create(RUNS, "nightly", run_of("archive", credentials={"name": "login"}))
    missing = that(RUN, lambda found: degraded(found) == "CredentialsMissing")
    with running():
        server.wait("that it says so", missing)
        assert server.names(SETS) == ["mill"]
        server.create("v1/secrets", "login", secret(username="u", password="p"))
        found = server.wait("the driver", exists(SETS))
    volumes = found["spec"]["template"]["spec"]["volumes"]
    assert {"secretName": "login", "defaultMode": 0o440} in [each.get("secret") for each in volumes]


def test_a_cluster_elsewhere_gives_no_administrator_away(world: World) -> None:
    server, _ = world
    server.merge(CLUSTERS, "mill", {"spec": {"allowedNamespaces": ["other"]}})
    body = run_of("archive", clusterRef={"name": "mill", "namespace": "shop"})
    server.create(RUNS, "nightly", body, "other")
    name = Name(RUNS, "other", "nightly")
    with running():
        server.wait(
            "that it says so", that(name, lambda found: degraded(found) == "CredentialsMissing")
        )
    assert server.get(SETS, DRIVER, "other") is None


def test_over_tls_a_driver_is_given_the_authority_and_no_key(world: World) -> None:
    server, _ = world
    server.merge(CLUSTERS, "mill", {"spec": {"tls": {"clients": {"mode": "Operator"}}}})
    server.create(RUNS, "nightly", run_of("archive"))
    with running():
        found = server.wait("the driver", exists(SETS))
        own = server.wait("the authority", exists("v1/secrets", "nightly-ca"))
        theirs = server.get("v1/secrets", "mill-client-tls") or {}
    assert own["data"] == {"ca.crt": theirs["data"]["ca.crt"]}
    [container] = found["spec"]["template"]["spec"]["containers"]
    values = {row["name"]: row.get("value") for row in container["env"]}
    assert values["HEADRACE_TLS"] == "true"
    assert values["HEADRACE_TLS_CA_FILE"] == "/etc/headrace/ca/ca.crt"
    assert values["HEADRACE_ENDPOINTS"] == "mill.shop.svc:7671"


def test_what_a_run_has_made_goes_with_it(world: World) -> None:
    server, _ = world
    server.create(RUNS, "nightly", run_of("archive"))
    with running():
        server.wait("the driver", exists(SETS))
        server.delete(RUNS, "nightly")
        gone = that(Name(SETS, "shop", DRIVER), lambda found: found is None)
        server.wait("that it is gone", gone)
        server.wait("its end", that(Name(RUNS, "shop", "nightly"), lambda found: found is None))
    assert DRIVER not in server.names("v1/services")
    assert "nightly-data" not in server.names("v1/persistentvolumeclaims")


def test_a_run_that_is_paused_is_looked_at_only(world: World) -> None:
    server, _ = world
    body = run_of("archive")
    body["metadata"] = {"annotations": {"headrace.dev/paused": "true"}}
    server.create(RUNS, "nightly", body)
    with running():
        looked = that(RUN, lambda found: degraded(found) == "AsExpected")
        server.wait("that it is looked at", looked)
        assert server.names(SETS) == ["mill"]
