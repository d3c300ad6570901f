"""Manifests for Kubernetes of the driver of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

Manifest = dict[str, Any]

RUN_LABEL: Final = "headrace.dev/pipeline-run"
TEMPLATE_HASH: Final = "headrace.dev/template-hash"
CONTAINER: Final = "driver"
STREAMING: Final = ("archive", "flow")  # jobs that go on until they are stopped; the others end
ALONE: Final = ("compact",)  # jobs that need neither Spark nor brokers, and take no options of them

USER: Final = 185  # of Spark's official image
DATA: Final = "/data"  # checkpoints and tables
CREDENTIALS: Final = "/etc/headrace/credentials"
AUTHORITY: Final = "/etc/headrace/ca"
CERTIFICATE: Final = "/etc/headrace/certificate"
TEMPORARY: Final = "/tmp"  # noqa: S108 - an emptyDir of the pod's own: the root is read-only

DRIVER_PORT: Final = 7078
BLOCK_PORT: Final = 7079
STOP_SECONDS: Final = 120  # a batch that is being written ends, or is given up after 60
TRIES_MAX: Final = 3  # of a job that ends
_SECRET_MODE: Final = 0o440
_HOST: Final = "$(HEADRACE_POD_IP)"


class Driver(NamedTuple):
    """A job, and where it runs."""

    name: str  # of the run; what is made is named after it
    namespace: str  # of all that is made
    job: str  # archive, flow, report, replay or compact
    image: str  # of the pipeline
    endpoints: str  # HOST:PORT of the brokers' gRPC listeners, with commas
    tls: bool = False  # whether they speak TLS
    master: str = "local[*]"  # of Spark
    options: Mapping[str, str] = {}  # of the job's command, by name; one that is "true" is a flag
    conf: Mapping[str, str] = {}  # Spark's own settings; they win over those that are set here
    credentials: str = ""  # Secret with `username` and `password`; "" for none
    authority: str = ""  # Secret with `ca.crt`; likewise
    certificate: str = ""  # Secret with `tls.crt` and `tls.key`; likewise
    service_account: str = ""  # with rights to make executors, "" where it needs no rights
    pull_policy: str = "IfNotPresent"  # of the image
    pull_secrets: tuple[str, ...] = ()  # for the image
    resources: Mapping[str, Mapping[str, str]] = {}  # of the container: requests and limits
    claim: str = ""  # PersistentVolumeClaim that is there; "" for one that is made
    claim_size: str = "10Gi"  # of the one that is made; "" for an emptyDir
    storage_class: str = ""  # of the one that is made, "" for the default
    suspend: bool = False  # whether it is stopped, and all kept
    labels: Mapping[str, str] = {}  # of everything, besides its own
    owner: Manifest | None = None  # with whom it is deleted, None for none

    @property
    def is_streaming(self) -> bool:
        """True if the job runs until it is stopped."""
        return self.job in STREAMING

    @property
    def is_local(self) -> bool:
        """True if the driver's pod does all the work."""
        return self.master.startswith("local")

    @property
    def full_name(self) -> str:
        """The name of the StatefulSet or Job, and of the Service."""
        return f"{self.name}-driver"

    @property
    def made_claim(self) -> str:
        """The name of the claim that is made, "" for none."""
        return f"{self.name}-data" if self.claim_size and not self.claim else ""

    @property
    def selector(self) -> dict[str, str]:
        """Labels by which the pod is found; they never change."""
        return {
            "app.kubernetes.io/name": "headrace",
            "app.kubernetes.io/instance": self.name,
            "app.kubernetes.io/component": "pipeline",
            RUN_LABEL: self.name,
        }


def driver_manifests(driver: Driver) -> list[Manifest]:
    """Return everything that a job needs but its Secrets, in the order in which it is applied.

    A job that goes on is a StatefulSet of one pod: Kubernetes starts no second pod before it knows
    that the first has ended, unless a node is given up by force. Then two drivers run for a while:
    the groups by which they read are fenced, so that one of them reads and the other fails.
    """
    found = [_claim(driver)] if driver.made_claim else []
    if driver.is_streaming:
        return [*found, _service(driver), _stateful_set(driver)]
    return [*found, _job(driver)]


def _manifest(driver: Driver, api_version: str, kind: str, name: str) -> Manifest:
    meta: Manifest = {
        "name": name,
        "namespace": driver.namespace,
        "labels": {**driver.labels, **driver.selector},
    }
    if driver.owner is not None:
        meta["ownerReferences"] = [driver.owner]
    return {"apiVersion": api_version, "kind": kind, "metadata": meta}


def _claim(driver: Driver) -> Manifest:
    found = _manifest(driver, "v1", "PersistentVolumeClaim", driver.made_claim)
    found["spec"] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": driver.claim_size}},
    }
    if driver.storage_class:
        found["spec"]["storageClassName"] = driver.storage_class
    return found


def _service(driver: Driver) -> Manifest:
    """Return the headless Service: executors find the driver by its pod's name."""
    found = _manifest(driver, "v1", "Service", driver.full_name)
    ports = {"driver": DRIVER_PORT, "blocks": BLOCK_PORT}
    found["spec"] = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": driver.selector,
        "ports": [{"name": name, "port": port, "protocol": "TCP"} for name, port in ports.items()],
    }
    return found


def _stateful_set(driver: Driver) -> Manifest:
    found = _manifest(driver, "apps/v1", "StatefulSet", driver.full_name)
    found["spec"] = {
        "replicas": 0 if driver.suspend else 1,
        "serviceName": driver.full_name,
        "selector": {"matchLabels": driver.selector},
        "template": _template(driver, "Always"),
    }
    return found


def _job(driver: Driver) -> Manifest:
    found = _manifest(driver, "batch/v1", "Job", driver.full_name)
    found["spec"] = {
        "suspend": driver.suspend,
        "backoffLimit": TRIES_MAX - 1,
        "completions": 1,
        "parallelism": 1,
        "template": _template(driver, "Never"),
    }
    return found


def _template(driver: Driver, restart: str) -> Manifest:
    spec: Manifest = {
        "restartPolicy": restart,
        "automountServiceAccountToken": bool(driver.service_account),
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": STOP_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(driver)],
        "volumes": _volumes(driver),
    }
    if driver.service_account:
        spec["serviceAccountName"] = driver.service_account
    if driver.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in driver.pull_secrets]
    return {"metadata": {"labels": {**driver.labels, **driver.selector}}, "spec": spec}


def _container(driver: Driver) -> Manifest:
    mounts: list[Manifest] = [
        {"name": "data", "mountPath": DATA},
        {"name": "tmp", "mountPath": TEMPORARY},
    ]
    mounts += [
        {"name": name, "mountPath": path, "readOnly": True} for name, _, path in _secrets(driver)
    ]
    found: Manifest = {
        "name": CONTAINER,
        "image": driver.image,
        "imagePullPolicy": driver.pull_policy,
        "command": ["headrace-pipeline"],
        "args": driver_arguments(driver),
        "env": _environment(driver),
        # What the job said last stands in the pod's status, and from there in the run's.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    if not driver.is_local:
        ports = {"driver": DRIVER_PORT, "blocks": BLOCK_PORT}
        found["ports"] = [
            {"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()
        ]
    resources = {name: dict(each) for name, each in driver.resources.items() if each}
    return {**found, "resources": resources} if resources else found


def driver_arguments(driver: Driver) -> list[str]:
    """Return what stands behind `headrace-pipeline`."""
    words = ["run", driver.job] if driver.is_streaming else [driver.job]
    conf = {} if driver.job in ALONE else {**_conf(driver), **driver.conf}
    settings = [f"--conf={name}={value}" for name, value in sorted(conf.items())]
    options = [
        f"--{name}" if value == "true" else f"--{name}={value}"
        for name, value in sorted(driver.options.items())
    ]
    return [*words, *settings, *options]


def _conf(driver: Driver) -> dict[str, str]:
    """Return the settings for executors: the driver's address, and their resources."""
    if driver.is_local:
        return {}
    host = f"{driver.full_name}-0.{driver.full_name}.{driver.namespace}.svc"
    found = {
        "spark.driver.host": host if driver.is_streaming else _HOST,
        "spark.driver.bindAddress": _HOST,
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_PORT),
    }
    if driver.master.startswith("k8s://"):
        own = "spark.kubernetes"
        found |= {
            f"{own}.namespace": driver.namespace,
            f"{own}.container.image": driver.image,
            f"{own}.container.image.pullPolicy": driver.pull_policy,
            f"{own}.driver.pod.name": "$(HEADRACE_POD_NAME)",  # executors go with it
            f"{own}.executor.label.{RUN_LABEL}-executor": driver.name,
        }
        if driver.pull_secrets:
            found[f"{own}.container.image.pullSecrets"] = ",".join(driver.pull_secrets)
        found |= {f"{own}.executor.secrets.{secret}": path for _, secret, path in _secrets(driver)}
    return found


def driver_places(driver: Driver) -> dict[str, str]:
    """Return variables that say where files are, unless the job's options do."""
    places = {"HEADRACE_ARCHIVE_TABLE": f"{DATA}/archive", "HEADRACE_TABLES": f"{DATA}/flow"}
    if driver.is_streaming:
        places["HEADRACE_CHECKPOINT"] = f"{DATA}/checkpoint"
    if driver.job == "report":
        places["HEADRACE_REPORT"] = f"{DATA}/report.html"
    return places


def _environment(driver: Driver) -> list[Manifest]:
    own = {"HEADRACE_POD_NAME": "metadata.name", "HEADRACE_POD_IP": "status.podIP"}
    values = {
        "HEADRACE_ENDPOINTS": driver.endpoints,
        "HEADRACE_MASTER": driver.master,
        "HEADRACE_TLS": str(driver.tls).lower(),
        **driver_places(driver),
    }
    found: list[Manifest] = []
    if driver.credentials:
        secret = {"name": driver.credentials, "key": "username"}
        found.append({"name": "HEADRACE_USERNAME", "valueFrom": {"secretKeyRef": secret}})
        values["HEADRACE_PASSWORD_FILE"] = f"{CREDENTIALS}/password"
    if driver.authority:
        values["HEADRACE_TLS_CA_FILE"] = f"{AUTHORITY}/ca.crt"
    if driver.certificate:
        values["HEADRACE_TLS_CERT_FILE"] = f"{CERTIFICATE}/tls.crt"
        values["HEADRACE_TLS_KEY_FILE"] = f"{CERTIFICATE}/tls.key"
    return [
        *[
            {"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for key, path in own.items()
        ],
        *found,
        *[{"name": key, "value": value} for key, value in values.items()],
    ]


def _secrets(driver: Driver) -> list[tuple[str, str, str]]:
    """Return volume, Secret and path of files to be mounted."""
    rows = [
        ("credentials", driver.credentials, CREDENTIALS),
        ("ca", driver.authority, AUTHORITY),
        ("certificate", driver.certificate, CERTIFICATE),
    ]
    return [row for row in rows if row[1]]


def _volumes(driver: Driver) -> list[Manifest]:
    claim = driver.claim or driver.made_claim
    data: Manifest = {"name": "data", "emptyDir": {}}
    if claim:
        data = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    secrets = [
        {"name": name, "secret": {"secretName": secret, "defaultMode": _SECRET_MODE}}
        for name, secret, _ in _secrets(driver)
    ]
    return [data, {"name": "tmp", "emptyDir": {}}, *secrets]
