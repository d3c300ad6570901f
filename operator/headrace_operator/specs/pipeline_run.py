"""`PipelineRun`: a job of the data pipeline."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from headrace_operator.specs.cluster_pod import Resources
from headrace_operator.specs.field import (
    IMMUTABLE,
    LIST_MAX,
    ClusterReference,
    LocalReference,
    ObjectName,
    Quantity,
    Rule,
    Spec,
)
from headrace_operator.specs.status import Status, Timestamp

NAME_MAX = 45  # letters: pods and their labels have longer names made of it
NAME_RULE = Rule(
    f"self.metadata.name.size() <= {NAME_MAX} && "
    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    f"the name has at most {NAME_MAX} lower-case letters, digits and '-', and begins with a letter",
)
DEFAULT_DRIVER = Resources(requests={"cpu": "500m", "memory": "1Gi"}, limits={"memory": "2Gi"})


class RunStorage(Spec, frozen=True, kw_only=True):
    """Storage of a job's checkpoints and tables.

    Attributes:
        claim_name: a PersistentVolumeClaim that is there, in place of one that is made.
        size: of the one that is made.
        storage_class_name: likewise.
        ephemeral: an emptyDir; the job begins anew when its pod is moved.
    """

    RULES = (
        Rule(
            "!(self.ephemeral && has(self.claimName))", "ephemeral and claimName exclude each other"
        ),
    )

    claim_name: ObjectName | None = None
    size: Quantity = "10Gi"
    storage_class_name: ObjectName | None = None
    ephemeral: bool = False


class PipelineRunSpec(Spec, frozen=True, kw_only=True):
    """Wanted job.

    Attributes:
        cluster_ref: the cluster whose messages or telemetry it reads.
        job: archive and flow go on until they are stopped; report, replay and compact end.
        image: of the pipeline.
        image_pull_policy: as in a pod.
        image_pull_secrets: for the image.
        master: of Spark: local[*] within the driver's pod, spark://HOST:PORT, or
            k8s://https://kubernetes.default.svc for executors in this namespace.
        service_account_name: of the driver's pod, with rights to make executors; needed for k8s://.
        conf: settings of Spark, by name; none for compact, which needs no Spark.
        options: of the job, by the names of its command's options; "true" for a flag.
        credentials: a Secret with `username` and `password` of a user of the broker; absent for the
            cluster's administrator, where the cluster is in the same namespace.
        certificate: a Secret with `tls.crt` and `tls.key`, where brokers ask for certificates.
        resources: of the driver's pod.
        storage: where checkpoints and tables are kept.
        suspend: whether the job is stopped and kept.
    """

    RULES = (
        Rule(
            "!self.master.startsWith('k8s://') || has(self.serviceAccountName)",
            "a master k8s:// needs serviceAccountName, with rights to make pods",
        ),
        Rule(
            "!has(self.conf) || self.conf.all(name, name.startsWith('spark.'))",
            "names in conf begin with spark.",
        ),
        Rule(
            "self.job != 'compact' || !has(self.conf) || self.conf.size() == 0",
            "compact runs without Spark: leave out conf",
        ),
    )

    cluster_ref: Annotated[ClusterReference, IMMUTABLE]
    job: Annotated[Literal["archive", "flow", "report", "replay", "compact"], IMMUTABLE]
    image: Annotated[str, Meta(min_length=1, max_length=512)]
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: Annotated[list[LocalReference], Meta(max_length=16)] | None = None
    master: Annotated[str, Meta(min_length=1, max_length=512)] = "local[*]"
    service_account_name: ObjectName | None = None
    conf: (
        Annotated[dict[str, Annotated[str, Meta(max_length=4096)]], Meta(max_length=LIST_MAX)]
        | None
    ) = None
    options: (
        Annotated[dict[str, Annotated[str, Meta(max_length=4096)]], Meta(max_length=LIST_MAX)]
        | None
    ) = None
    credentials: LocalReference | None = None
    certificate: LocalReference | None = None
    resources: Resources = DEFAULT_DRIVER
    storage: RunStorage = RunStorage()
    suspend: bool = False


class PipelineRunStatus(Status, frozen=True, kw_only=True):
    """State of a job.

    Attributes:
        phase: what it does.
        started_at: when its driver began.
        finished_at: when a job that ends did.
        message: what it said last.
    """

    phase: Literal["Pending", "Running", "Suspended", "Succeeded", "Failed"] | None = None
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    message: Annotated[str, Meta(max_length=1024)] = ""
