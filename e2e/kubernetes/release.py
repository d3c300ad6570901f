"""The chart's release: installed, tested, upgraded and uninstalled by Helm."""

from __future__ import annotations

import json
from typing import Final

from e2e.kubernetes.cluster import GROUP, Kubernetes, Manifest
from e2e.kubernetes.command import run
from e2e.kubernetes.images import Image
from e2e.kubernetes.settings import CHART, Settings
from e2e.kubernetes.workload import CLUSTER, cluster_spec

RELEASE: Final = CLUSTER
OPERATOR: Final = f"{RELEASE}-headrace-operator"
OPERATOR_LABEL: Final = "app.kubernetes.io/name=headrace-operator"
HELM_SECONDS: Final = 300
FIELD_MANAGER: Final = "headrace-e2e"


class Release:
    """The release of a run.

    Args:
        settings: of the run.
        kubernetes: where it is.
        images: the broker's and the operator's.
        ephemeral: brokers keep their data in no volumes.
    """

    def __init__(
        self,
        settings: Settings,
        kubernetes: Kubernetes,
        images: tuple[Image, Image],
        ephemeral: bool,
    ) -> None:
        self._kubernetes = kubernetes
        self._program = [settings.program(settings.helm), "--kubeconfig", settings.kubeconfig]
        self.values: Manifest = {
            "image": {"broker": images[0].values, "operator": images[1].values},
            "operator": {"watch": {"scope": settings.scope}, "resyncSeconds": 20},
            "cluster": {"create": True, "name": CLUSTER, "spec": cluster_spec(ephemeral)},
        }

    def helm(self, *arguments: str, stdin: str = "") -> str:
        """Run Helm in the namespace of the run.

        Raises:
            CommandError: it fails.
        """
        command = [*self._program, "--namespace", self._kubernetes.namespace, *arguments]
        return run(command, stdin, HELM_SECONDS + 10)

    def install(self) -> None:
        """Install the chart and wait as Helm does."""
        self._put("install")

    def upgrade(self) -> None:
        """Upgrade the release to `values` as they are now."""
        self._put("upgrade")

    def _put(self, how: str) -> None:
        waits = ("--wait", "--timeout", f"{HELM_SECONDS}s")
        values = json.dumps(self.values)
        self.helm(how, RELEASE, str(CHART), *waits, "--values", "-", stdin=values)

    def test(self) -> str:
        """Run the chart's own tests, and return what Helm says of them."""
        return self.helm("test", RELEASE, "--timeout", f"{HELM_SECONDS}s")

    def uninstall(self) -> None:
        """Uninstall it, and wait as Helm does."""
        waits = ("--wait", "--timeout", f"{HELM_SECONDS}s")
        self.helm("uninstall", RELEASE, "--ignore-not-found", *waits)

    def update_definitions(self) -> None:
        """Apply the chart's CustomResourceDefinitions, as is done before an upgrade."""
        text = self.helm("show", "crds", str(CHART))
        manager = f"--field-manager={FIELD_MANAGER}"
        kubectl = self._kubernetes.kubectl
        kubectl("apply", "--server-side", "--force-conflicts", manager, "-f", "-", stdin=text)

    def cluster_wide(self) -> list[str]:
        """Return the names of what the release has outside its namespace, as KIND/NAME."""
        kinds = "clusterroles,clusterrolebindings"
        rows = self._kubernetes.items(kinds, OPERATOR_LABEL)
        prefix = f"{self._kubernetes.namespace}-"
        names = [(each["kind"], str(each["metadata"]["name"])) for each in rows]
        return ["/".join(row) for row in names if row[1].startswith(prefix)]


def definitions(kubernetes: Kubernetes) -> list[str]:
    """Return the definitions of Headrace's resources that the cluster has, as CRD names."""
    rows = json.loads(kubernetes.kubectl("get", "customresourcedefinitions", "-o", "json"))
    names = [str(each["metadata"]["name"]) for each in rows["items"]]
    return sorted(name for name in names if name.endswith(f".{GROUP}"))


def resources_of_others(kubernetes: Kubernetes) -> list[Manifest]:
    """Return the resources of Headrace that are in the cluster, whatever their namespace."""
    kinds = ",".join(definitions(kubernetes))
    return _everywhere(kubernetes, kinds) if kinds else []


def conflicts(kubernetes: Kubernetes, scope: str) -> list[str]:
    """Return what would be in the way of an operator, as KIND NAMESPACE/NAME.

    One that watches all namespaces would look after what is others', and so would theirs.
    """
    operators = _everywhere(kubernetes, "deployments", "-l", OPERATOR_LABEL)
    if scope == "Cluster":
        found = [*operators, *resources_of_others(kubernetes)]
    else:
        found = [each for each in operators if "--all-namespaces" in json.dumps(each)]
    metas = [(each["kind"], each["metadata"]) for each in found]
    return [f"{kind} {meta['namespace']}/{meta['name']}" for kind, meta in metas]


def _everywhere(kubernetes: Kubernetes, kinds: str, *options: str) -> list[Manifest]:
    text = kubernetes.kubectl("get", kinds, *options, "--all-namespaces", "-o", "json")
    found: list[Manifest] = json.loads(text)["items"]
    return found


def has_default_storage(kubernetes: Kubernetes) -> bool:
    """Return whether volumes can be had without naming a class."""
    rows = json.loads(kubernetes.kubectl("get", "storageclasses", "-o", "json"))["items"]
    mark = "storageclass.kubernetes.io/is-default-class"
    return any((each["metadata"].get("annotations") or {}).get(mark) == "true" for each in rows)
