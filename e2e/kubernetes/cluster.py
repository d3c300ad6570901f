"""A Kubernetes cluster, by kubectl, as far as the scenario needs it: one namespace of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from e2e.kubernetes.command import CommandError, Waiter, run
from e2e.kubernetes.settings import Settings

Manifest = dict[str, Any]

GROUP: Final = "headrace.dev"
# What is put on everything that is made here.
LABEL: Final = "app.kubernetes.io/part-of-run"
# What is in every namespace, and nobody's.
ALWAYS: Final = frozenset(
    [
        ("configmaps", "kube-root-ca.crt"),
        ("configmaps", "openshift-service-ca.crt"),  # where OpenShift's controllers run
        ("serviceaccounts", "default"),
    ]
)
NOTICES: Final = frozenset(["events", "events.events.k8s.io"])  # these go by themselves
LOG_LINES: Final = 200  # of each pod, shown when a step fails


class Kubernetes:
    """A namespace of a cluster.

    Args:
        settings: which cluster.
        namespace: made by `begin`, and removed by `end`.
    """

    def __init__(self, settings: Settings, namespace: str) -> None:
        self.namespace = namespace
        self.waiter = Waiter()
        self._program = [settings.program("kubectl"), "--kubeconfig", settings.kubeconfig]

    def kubectl(self, *arguments: str, stdin: str = "", seconds: float = 60.0) -> str:
        """Run kubectl in the namespace.

        Raises:
            CommandError: it fails.
        """
        return run([*self._program, "-n", self.namespace, *arguments], stdin, seconds)

    def begin(self) -> None:
        """Make the namespace, in which pods have to meet the strictest of the standards."""
        labels = {LABEL: self.namespace, "pod-security.kubernetes.io/enforce": "restricted"}
        meta = {"name": self.namespace, "labels": labels}
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})

    def end(self) -> None:
        """Remove the namespace with all that is in it, and wait until it is gone."""
        self.kubectl("delete", "namespace", self.namespace, "--ignore-not-found", seconds=300)

    def create(self, *manifests: Manifest) -> None:
        """Create objects.

        Raises:
            CommandError: one is refused.
        """
        self.kubectl("create", "-f", "-", stdin=_listed(manifests))

    def apply(self, *manifests: Manifest) -> None:
        """Apply manifests.

        Raises:
            CommandError: one is refused.
        """
        self.kubectl("apply", "--server-side", "-f", "-", stdin=_listed(manifests))

    def get(self, kind: str, name: str) -> Manifest | None:
        """Return an object, None when it is not there."""
        text = self.kubectl("get", kind, name, "-o", "json", "--ignore-not-found")
        found: Manifest | None = json.loads(text) if text else None
        return found

    def there(self, kind: str, name: str) -> Manifest:
        """Return an object that has to be there."""
        found = self.get(kind, name)
        assert found is not None, f"{kind} {name} is not there"
        return found

    def items(self, kind: str, selector: str = "") -> list[Manifest]:
        """Return the objects of a kind, by name."""
        more = ["-l", selector] if selector else []
        found = json.loads(self.kubectl("get", kind, "-o", "json", *more))["items"]
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    def merge(self, kind: str, name: str, patch: Manifest) -> None:
        """Merge a patch into an object."""
        self.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(patch))

    def delete(self, kind: str, *names: str, options: Sequence[str] = ()) -> None:
        """Delete objects; waits until they are gone, unless options say otherwise."""
        self.kubectl("delete", kind, *names, *options, seconds=180)

    def wait_gone(self, kind: str, name: str, seconds: float = 60.0) -> None:
        """Wait until an object is gone."""
        gone = self.waiter.wait
        gone(f"the end of {kind} {name}", lambda: self.get(kind, name) is None, seconds)

    def wait_ready(self, kind: str, name: str, seconds: float = 60.0) -> Manifest:
        """Wait until a resource of Headrace is as it is wanted, and return it."""

        def found() -> Manifest | None:
            body = self.get(kind, name)
            return body if body is not None and is_settled(body) else None

        return self.waiter.wait(f"{kind} {name} to be ready", found, seconds)

    def events(self, reason: str = "", about: str = "") -> list[Manifest]:
        """Return events, the oldest first."""
        rows = [
            each
            for each in self.items("events")
            if reason in ("", each["reason"]) and about in ("", each["involvedObject"]["name"])
        ]
        return sorted(rows, key=_event_time)

    def left(self) -> list[str]:
        """Return the objects in the namespace, except those of every one, as KIND/NAME."""
        kinds = self.kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
        kinds = [each for each in kinds if each not in NOTICES]
        found = json.loads(self.kubectl("get", ",".join(kinds), "-o", "json"))["items"]
        rows = {
            (f"{each['kind'].lower()}s", str(each["metadata"]["name"]))
            for each in found
            if not each["apiVersion"].startswith("metrics.k8s.io")
        }
        return sorted("/".join(row) for row in rows - ALWAYS)

    def description(self) -> str:
        """Return what tells why a step failed: objects, events, and what pods wrote."""
        kinds = "pods,statefulsets,deployments,services,pvc,brokerclusters.headrace.dev"
        parts = [
            self._said("get", kinds, "-o", "wide"),
            self._said("get", "events", "--sort-by=.metadata.creationTimestamp"),
            self._said("get", "brokerclusters.headrace.dev", "-o", "yaml"),
        ]
        try:
            pods = [str(each["metadata"]["name"]) for each in self.items("pods")]
        except CommandError as error:
            return "\n\n".join([*parts, str(error)])
        lines = f"--tail={LOG_LINES}"
        parts += [self._said("logs", pod, "--all-containers", lines) for pod in pods]
        return "\n\n".join(parts)

    def _said(self, *arguments: str) -> str:
        """Return what kubectl says, or why it does not."""
        try:
            text = self.kubectl(*arguments)
        except CommandError as error:
            text = str(error)
        return f"$ kubectl {' '.join(arguments)}\n{text}"


def _listed(manifests: Sequence[Manifest]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})


def _event_time(event: Manifest) -> str:
    return str(event.get("eventTime") or event.get("firstTimestamp") or "")


def condition(body: Manifest, name: str) -> Manifest:
    """Return a condition of a resource, empty when it has none of that name."""
    rows = (body.get("status") or {}).get("conditions") or []
    return next((dict(row) for row in rows if row["type"] == name), {})


def is_settled(body: Manifest) -> bool:
    """Return whether a resource of Headrace is ready, and nothing of it is under way."""
    seen = (body.get("status") or {}).get("observedGeneration")
    if seen != body["metadata"]["generation"]:
        return False
    wanted = {"Ready": "True", "Progressing": "False", "Degraded": "False"}
    return all(condition(body, name).get("status") == value for name, value in wanted.items())
