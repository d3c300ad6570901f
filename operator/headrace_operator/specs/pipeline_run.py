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

DEFAULT_DRIVER = Resources(requests={"cpu": "500m", "memory": "1Gi"}, limits={"memory": "2Gi"})


class RunStorage(Spec, frozen=True, kw_only=True):
    """Where a job keeps its checkpoints and tables.

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
    """What is to run.

    Attributes:
        cluster_ref: the cluster whose messages or telemetry it reads.
        job: archive and flow go on until they are stopped; report, replay and compact end.
        image: of the pipeline.
        image_pull_policy: as in a pod.
        image_pull_secrets: for the image.
        master: of Spark: local[*] within the driver's pod, or the address of a cluster.
        options: of the job, by the names of its command's options.
        credentials: a Secret with `username` and `password` of a user of the broker.
        resources: of the driver's pod.
        storage: where checkpoints and tables are kept.
        suspend: whether the job is stopped and kept.
    """

    cluster_ref: Annotated[ClusterReference, IMMUTABLE]
    job: Annotated[Literal["archive", "flow", "report", "replay", "compact"], IMMUTABLE]
    image: Annotated[str, Meta(min_length=1, max_length=512)]
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: Annotated[list[LocalReference], Meta(max_length=16)] | None = None
    master: Annotated[str, Meta(min_length=1, max_length=512)] = "local[*]"
    options: (
        Annotated[dict[str, Annotated[str, Meta(max_length=4096)]], Meta(max_length=LIST_MAX)]
        | None
    ) = None
    credentials: LocalReference | None = None
    resources: Resources = DEFAULT_DRIVER
    storage: RunStorage = RunStorage()
    suspend: bool = False


class PipelineRunStatus(Status, frozen=True, kw_only=True):
    """How a job is.

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
