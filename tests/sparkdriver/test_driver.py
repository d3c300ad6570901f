"""The manifests of drivers: what Kubernetes takes, and what Spark needs."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest

from headrace_sparkdriver.driver import Driver, driver_arguments, driver_manifests

KUBERNETES = "1.32"
JOBS = ("archive", "flow", "report", "replay", "compact")
K8S = "k8s://https://kubernetes.default.svc"
OWNER = {"apiVersion": "headrace.dev/v1alpha1", "kind": "PipelineRun", "name": "run", "uid": "u"}


def driver(job: str = "archive", **more: Any) -> Driver:
    return Driver("run", "shop", job, "headrace/pipeline:1", "mill.shop.svc:7672", **more)


def full(job: str = "archive", **more: Any) -> Driver:
    return driver(
        job,
        tls=True,
        master=K8S,
        credentials="login",
        authority="run-ca",
        certificate="own",
        service_account="spark",
        pull_secrets=("a", "b"),
        resources={"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}},
        storage_class="fast",
        owner=OWNER,
        **more,
    )


def workload(made: Driver) -> dict[str, Any]:
    return driver_manifests(made)[-1]


def container(made: Driver) -> dict[str, Any]:
    [found] = workload(made)["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("job", JOBS)
def test_manifests_are_what_kubernetes_takes(job: str) -> None:
    for made in (driver(job), full(job), driver(job, claim="mine"), driver(job, claim_size="")):
        for manifest in driver_manifests(made):
            kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
            assert manifest["metadata"]["labels"]["headrace.dev/pipeline-run"] == "run"
            owners = manifest["metadata"].get("ownerReferences")
            assert owners == ([made.owner] if made.owner else None)


@pytest.mark.parametrize("job", JOBS)
def test_pods_meet_the_restricted_standard(job: str) -> None:
    spec = workload(full(job))["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = container(full(job))["securityContext"]
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"]}


def test_only_who_makes_executors_gets_a_token() -> None:
    assert not workload(driver())["spec"]["template"]["spec"]["automountServiceAccountToken"]
    spec = workload(full())["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"]
    assert spec["serviceAccountName"] == "spark"


def test_a_job_that_goes_on_is_a_set_of_one_pod_and_the_others_are_jobs() -> None:
    kinds = {job: [each["kind"] for each in driver_manifests(driver(job))] for job in JOBS}
    assert kinds["archive"] == ["PersistentVolumeClaim", "Service", "StatefulSet"]
    assert kinds["flow"] == kinds["archive"]
    assert kinds["report"] == kinds["replay"] == kinds["compact"]
    assert kinds["report"] == ["PersistentVolumeClaim", "Job"]
    assert workload(driver())["spec"]["replicas"] == 1
    assert workload(driver(suspend=True))["spec"]["replicas"] == 0
    assert workload(driver("report", suspend=True))["spec"]["suspend"]


def test_options_are_arguments_and_what_is_true_is_a_flag() -> None:
    options = {"table": "/data/a", "once": "true", "where": "a = 'b c'"}
    words = driver_arguments(driver(options=options, conf={"spark.driver.memory": "1g"}))
    assert words == [
        *("run", "archive", "--conf=spark.driver.memory=1g"),
        *("--once", "--table=/data/a", "--where=a = 'b c'"),
    ]
    assert driver_arguments(driver("replay"))[0] == "replay"


def settings(made: Driver) -> dict[str, str]:
    words = [each.removeprefix("--conf=") for each in driver_arguments(made) if "--conf=" in each]
    return {name: value for name, _, value in (each.partition("=") for each in words)}


def test_executors_elsewhere_find_the_driver_by_name_or_address() -> None:
    assert settings(driver()) == {}
    remote = settings(driver(master="spark://a:7077"))
    assert remote["spark.driver.host"] == "run-driver-0.run-driver.shop.svc"
    assert settings(driver("report", master="spark://a:7077"))["spark.driver.host"] == (
        "$(HEADRACE_POD_IP)"
    )
    ports = {row["containerPort"] for row in container(driver(master="spark://a:7077"))["ports"]}
    assert ports == {
        int(remote["spark.driver.port"]),
        int(remote["spark.driver.blockManager.port"]),
    }
    service = driver_manifests(driver(master="spark://a:7077"))[1]
    assert {row["port"] for row in service["spec"]["ports"]} == ports
    assert service["spec"]["clusterIP"] == "None"


def test_executors_of_kubernetes_are_given_the_drivers_image_and_secrets() -> None:
    found = settings(full(conf={"spark.executor.instances": "3"}))
    own = "spark.kubernetes"
    assert found[f"{own}.container.image"] == "headrace/pipeline:1"
    assert found[f"{own}.namespace"] == "shop"
    assert found[f"{own}.driver.pod.name"] == "$(HEADRACE_POD_NAME)"
    assert found[f"{own}.container.image.pullSecrets"] == "a,b"
    assert found["spark.executor.instances"] == "3"
    mounts = {row["mountPath"] for row in container(full())["volumeMounts"]}
    for secret, path in [
        ("login", "/etc/headrace/credentials"),
        ("run-ca", "/etc/headrace/ca"),
        ("own", "/etc/headrace/certificate"),
    ]:
        assert found[f"{own}.executor.secrets.{secret}"] == path
        assert path in mounts
    assert settings(full(conf={f"{own}.namespace": "mine"}))[f"{own}.namespace"] == "mine"


def test_a_password_is_a_file_and_stands_in_no_manifest() -> None:
    rows = {row["name"]: row for row in container(full())["env"]}
    assert rows["HEADRACE_PASSWORD_FILE"]["value"] == "/etc/headrace/credentials/password"
    reference = rows["HEADRACE_USERNAME"]["valueFrom"]["secretKeyRef"]
    assert reference == {"name": "login", "key": "username"}
    assert "HEADRACE_USERNAME" not in {row["name"] for row in container(driver())["env"]}


def test_files_are_on_the_claim_unless_options_say_where() -> None:
    def places(job: str) -> set[str]:
        rows = container(driver(job))["env"]
        return {row["name"] for row in rows if str(row.get("value")).startswith("/data/")}

    tables = {"HEADRACE_ARCHIVE_TABLE", "HEADRACE_TABLES"}
    assert places("archive") == places("flow") == {"HEADRACE_CHECKPOINT", *tables}
    assert places("report") == tables | {"HEADRACE_REPORT"}
    assert places("compact") == tables


def test_data_is_on_a_claim_that_is_made_or_there_or_on_nothing() -> None:
    def data(made: Driver) -> Any:
        return workload(made)["spec"]["template"]["spec"]["volumes"][0]

    assert data(driver())["persistentVolumeClaim"] == {"claimName": "run-data"}
    assert data(driver(claim="mine"))["persistentVolumeClaim"] == {"claimName": "mine"}
    assert data(driver(claim_size="")) == {"name": "data", "emptyDir": {}}
    assert [each["kind"] for each in driver_manifests(driver(claim="mine"))] == [
        "Service",
        "StatefulSet",
    ]
