"""Manifests that run a job on Kubernetes: a PipelineRun for the operator, or what it would make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headrace_pipeline.error import OptionError
from headrace_sparkdriver.driver import (
    ALONE,
    AUTHORITY,
    CERTIFICATE,
    CREDENTIALS,
    DATA,
    Driver,
    Manifest,
    driver_arguments,
    driver_manifests,
    driver_places,
)

JOBS: Final = ("archive", "flow", "report", "replay", "compact")
FORMS: Final = ("pipelinerun", "statefulset", "job", "sparkapplication")
SPARK_VERSION: Final = "4.3.0"  # of the image; SparkApplication's operator asks for one
ENTRY: Final = "local:///opt/headrace/main.py"  # in the image of pipeline/Dockerfile


class Wish(NamedTuple):
    """A job as the user asks for it."""

    driver: Driver  # the same for all forms
    cluster: str = ""  # name of the BrokerCluster; for a PipelineRun


def manifests(wish: Wish, form: str) -> list[Manifest]:
    """Return the manifests of a job.

    Args:
        wish: what is to run.
        form: one of FORMS.

    Raises:
        OptionError: the job cannot be run in this form.
    """
    driver = wish.driver
    if driver.job in ALONE and driver.conf and form != "sparkapplication":
        raise OptionError("conf", f"{driver.job} runs without Spark: leave it out")
    if form == "pipelinerun":
        return [pipeline_run(wish)]
    if form == "sparkapplication":
        return [spark_application(driver)]
    if driver.is_streaming != (form == "statefulset"):
        fitting = "statefulset" if driver.is_streaming else "job"
        rule = f"{driver.job} runs as {fitting}, pipelinerun or sparkapplication"
        raise OptionError("kind", rule)
    return driver_manifests(driver)


def pipeline_run(wish: Wish) -> Manifest:
    """Return the resource of which the operator makes the other manifests.

    Raises:
        OptionError: no cluster is named.
    """
    driver = wish.driver
    if not wish.cluster:
        raise OptionError("cluster", "a PipelineRun needs the name of its BrokerCluster")
    storage: Manifest = {"size": driver.claim_size} if driver.claim_size else {"ephemeral": True}
    if driver.claim:
        storage = {"claimName": driver.claim}
    if driver.storage_class:
        storage["storageClassName"] = driver.storage_class
    optional: Manifest = {
        "serviceAccountName": driver.service_account,
        "conf": dict(driver.conf),
        "options": dict(driver.options),
        "credentials": {"name": driver.credentials} if driver.credentials else None,
        "certificate": {"name": driver.certificate} if driver.certificate else None,
        "imagePullSecrets": [{"name": each} for each in driver.pull_secrets],
        "resources": {name: dict(each) for name, each in driver.resources.items() if each},
        "suspend": driver.suspend,
    }
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "PipelineRun",
        "metadata": {"name": driver.name, "namespace": driver.namespace},
        "spec": {
            "clusterRef": {"name": wish.cluster},
            "job": driver.job,
            "image": driver.image,
            "imagePullPolicy": driver.pull_policy,
            "master": driver.master,
            "storage": storage,
            **{name: value for name, value in optional.items() if value},
        },
    }


def spark_application(driver: Driver) -> Manifest:
    """Return a resource of the Kubernetes operator for Apache Spark (spark.apache.org/v1).

    Spark starts the driver's pod itself there. A driver that ends is started anew by that operator
    where the job goes on.
    """
    conf = {
        "spark.kubernetes.container.image": driver.image,
        "spark.kubernetes.container.image.pullPolicy": driver.pull_policy,
        "spark.kubernetes.namespace": driver.namespace,
        "spark.kubernetes.authenticate.driver.serviceAccountName": driver.service_account
        or "spark",
    }
    for name, value in driver_places(driver).items():
        conf[f"spark.kubernetes.driverEnv.{name}"] = value
    for role in ("driver", "executor"):
        for secret, path in _mounted(driver):
            conf[f"spark.kubernetes.{role}.secrets.{secret}"] = path
    if driver.credentials:
        name = "spark.kubernetes.driver.secretKeyRef.HEADRACE_USERNAME"
        conf[name] = f"{driver.credentials}:username"
    if driver.claim:  # one that Spark makes goes with the driver, and the checkpoint with it
        own = "spark.kubernetes.driver.volumes.persistentVolumeClaim.data"
        conf[f"{own}.options.claimName"] = driver.claim
        conf[f"{own}.mount.path"] = DATA
    local = driver._replace(conf={}, master="local[*]")  # the rest the operator of Spark does
    spec: dict[str, Any] = {
        "pyFiles": ENTRY,
        "driverArgs": [*driver_arguments(local), *_connection(driver)],
        "sparkConf": {**conf, **driver.conf},
        "runtimeVersions": {"sparkVersion": SPARK_VERSION},
        "applicationTolerations": {
            "restartConfig": {"restartPolicy": "Always" if driver.is_streaming else "Never"}
        },
    }
    return {
        "apiVersion": "spark.apache.org/v1",
        "kind": "SparkApplication",
        "metadata": {
            "name": driver.name,
            "namespace": driver.namespace,
            "labels": {**driver.labels, **driver.selector},
        },
        "spec": spec,
    }


def _mounted(driver: Driver) -> list[tuple[str, str]]:
    rows = [
        (driver.credentials, CREDENTIALS),
        (driver.authority, AUTHORITY),
        (driver.certificate, CERTIFICATE),
    ]
    return [row for row in rows if row[0]]


def _connection(driver: Driver) -> list[str]:
    """Return the arguments that a driver of ours has in its environment."""
    if driver.job in ALONE:
        return []
    found = [f"--endpoints={driver.endpoints}", "--tls" if driver.tls else "--no-tls"]
    if driver.credentials:
        found.append(f"--password-file={CREDENTIALS}/password")
    if driver.authority:
        found.append(f"--tls-ca-file={AUTHORITY}/ca.crt")
    if driver.certificate:
        found += [f"--tls-cert-file={CERTIFICATE}/tls.crt", f"--tls-key-file={CERTIFICATE}/tls.key"]
    return found


def read_pairs(name: str, pairs: tuple[str, ...]) -> dict[str, str]:
    """Return a mapping from texts NAME=VALUE.

    Raises:
        OptionError: one is something else.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise OptionError(name, f"must be NAME=VALUE, not {pair!r}")
        found[key] = value
    return found


def resources_of(requests: Mapping[str, str], limits: Mapping[str, str]) -> Manifest:
    """Return what a container asks for and may use."""
    return {"requests": dict(requests), "limits": dict(limits)}
