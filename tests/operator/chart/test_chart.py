"""The chart: linted, rendered by Helm 3 and Helm 4, and judged by Kubernetes' schemas.

`make chart` runs this; it says by HEADRACE_HELM where the programs are. `HEADRACE_WRITE_GOLDEN=1`
writes the files in golden/ anew: look at the difference before it is committed.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.operator.judge import judged

from headrace_broker.model import build_info
from headrace_operator.builders.stateful_set import USER
from headrace_operator.crd import yaml_text
from headrace_operator.specs.kind import GROUP, KINDS

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "headrace"
HERE = Path(__file__).parent
VALUES = sorted((HERE / "values").glob("*.yaml"))
WRITE = bool(os.environ.get("HEADRACE_WRITE_GOLDEN"))
KUBERNETES = "1.32"
FOREIGN = frozenset({"ServiceMonitor", "PodMonitor", "PrometheusRule"})
HELMS = ("helm3", "helm4")

programs = pytest.mark.skipif(
    "HEADRACE_HELM" not in os.environ, reason="`make chart` gets Helm and runs these"
)


def helm(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = Path(os.environ["HEADRACE_HELM"]).resolve() / program
    return subprocess.run([str(path), *arguments], capture_output=True, text=True, timeout=60)


def rendered(program: str, values: Path) -> list[dict[str, Any]]:
    """Manifests in a stable order; of files that are only wrapped, their names."""
    done = helm(program, "template", "mill", str(CHART), "-n", "shop", "-f", str(values))
    assert done.returncode == 0, done.stderr
    found = [each for each in yaml.safe_load_all(done.stdout) if each]
    return sorted(found, key=lambda each: (each["kind"], each["metadata"]["name"]))


def shortened(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest without the parts of another file."""
    if manifest["kind"] == "PrometheusRule":
        return {**manifest, "spec": "as the file"}
    if manifest["kind"] == "ConfigMap":
        return {**manifest, "data": dict.fromkeys(manifest["data"], "as the file")}
    return manifest


@programs
@pytest.mark.parametrize("program", HELMS)
@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_it_is_rendered_as_in_the_file_and_as_kubernetes_wants(program: str, values: Path) -> None:
    manifests = rendered(program, values)
    golden = HERE / "golden" / values.name
    text = "---\n".join(yaml_text(shortened(manifest)) for manifest in manifests)
    if WRITE:
        golden.write_text(text, encoding="utf-8")
    assert golden.read_text(encoding="utf-8") == text
    for manifest in manifests:
        if manifest["apiVersion"].startswith(f"{GROUP}/"):
            assert (
                judged(manifest["kind"], manifest["spec"], name=manifest["metadata"]["name"]) == []
            )
        elif manifest["kind"] not in FOREIGN:
            kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


@programs
@pytest.mark.parametrize("program", HELMS)
def test_lint_has_nothing_to_say(program: str) -> None:
    for values in VALUES:
        done = helm(program, "lint", "--strict", str(CHART), "-f", str(values))
        assert done.returncode == 0, done.stdout + done.stderr


@programs
@pytest.mark.parametrize("program", HELMS)
@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("operator.logLevel=loud", "logLevel"),
        ("operator.replicas=2", "replicas"),
        ("operator.ports.health=0", "health"),
        ("operator.watch.scope=Everywhere", "scope"),
        ("image.broker.digest=abc", "digest"),
        ("cluster.name=9lives", "name"),
        ("cluster.create=maybe", "create"),
        ("clusters.create=true", "clusters"),
        ("monitoring.monitor.interval=often", "interval"),
    ],
)
def test_values_that_cannot_be_are_refused_by_name(program: str, setting: str, reason: str) -> None:
    done = helm(program, "template", "mill", str(CHART), "--set", setting)
    assert done.returncode != 0
    assert reason in done.stderr


@programs
def test_notes_give_the_next_commands() -> None:
    program = "helm4"  # Helm 3 shows no notes without a cluster; that they are rendered is linted
    command = ("install", "mill", str(CHART), "-n", "shop", "--dry-run=client")
    done = helm(program, *command, "--set", "cluster.create=true")
    assert done.returncode == 0, done.stderr
    for text in (
        "kubectl -n shop wait brokercluster/mill --for=condition=Ready",
        "get secret mill-default-user",
        "clusterRef: {name: mill}",
        "helm -n shop test mill",
    ):
        assert text in done.stdout
    assert "There is no cluster yet" in helm(program, *command).stdout


@programs
def test_dashboards_and_rules_are_the_files() -> None:
    manifests = rendered("helm3", HERE / "values" / "monitoring.yaml")
    boards = {
        key: text
        for each in manifests
        if each["kind"] == "ConfigMap"
        for key, text in each["data"].items()
    }
    files = {
        path.name: path.read_text(encoding="utf-8") for path in CHART.glob("dashboards/*.json")
    }
    assert boards.keys() == files.keys()
    for name, text in files.items():
        assert json.loads(boards[name]) == json.loads(text)
    specs = [each["spec"] for each in manifests if each["kind"] == "PrometheusRule"]
    rules = [
        yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in sorted(CHART.glob("rules/*.yaml"))
    ]
    assert sorted(specs, key=str) == sorted(rules, key=str)


# ------------------------------------------------------------------------------ without Helm


def test_the_chart_has_the_version_of_the_broker() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == build_info.VERSION


def test_pods_of_the_chart_run_as_the_images_user() -> None:
    names = (CHART / "templates" / "_names.tpl").read_text(encoding="utf-8")
    assert f"runAsUser: {USER}\n" in names


def test_the_operator_may_use_every_kind_and_its_status() -> None:
    rules = (CHART / "templates" / "_rules.tpl").read_text(encoding="utf-8")
    for kind in KINDS:
        assert f"- {kind.plural}\n" in rules
        assert f"- {kind.plural}/status\n" in rules
    assert "*" not in rules.replace("/*", "").replace("*/", ""), "no rule is for everything"


def examples() -> list[tuple[str, dict[str, Any]]]:
    return [
        (path.name, row)
        for path in sorted((CHART / "examples").glob("*.yaml"))
        for row in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(
    ("file", "resource"),
    examples(),
    ids=lambda each: each if isinstance(each, str) else each["kind"],
)
def test_examples_are_what_the_schemas_and_rules_allow(file: str, resource: dict[str, Any]) -> None:
    assert resource["apiVersion"] == f"{GROUP}/v1alpha1", file
    assert judged(resource["kind"], resource["spec"], name=resource["metadata"]["name"]) == []


def test_there_is_an_example_of_every_kind() -> None:
    assert {row["kind"] for _, row in examples()} == {kind.name for kind in KINDS}
