"""Tests of the scenario's parts that need no cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from e2e.kubernetes import client_program, record
from e2e.kubernetes.command import CommandError, Waiter, run
from e2e.kubernetes.images import Image, build_commands, parse
from e2e.kubernetes.settings import CHART, Settings
from e2e.kubernetes.workload import Workload, cluster_spec, scaler, topology
from tests.operator.judge import judged

from headrace_operator.builders.stateful_set import USER

SETTINGS = Settings(
    kubeconfig="config",
    builder="docker",
    build_args=("BASE=python",),
    build_options=("--network=host",),
    load="ctr -n k8s.io images import '{archive}'",
    broker_image="",
    operator_image="",
    programs=Path("programs"),
    helm="helm4",
    storage="auto",
    scope="Cluster",
    minutes=15,
    keep=False,
)


def test_what_a_pod_wrote_is_what_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    kept = client_program.Record()
    for number in (5, 1, 2, 9, 3):
        kept.note("confirmed", number)
    kept.note("refused", 4)
    kept.write()
    kept.write()
    text = capsys.readouterr().out
    assert text.count("\n") == 1
    assert json.loads(text)["confirmed"] == [[1, 3], [5, 5], [9, 9]]
    found = record.read(f"connects again\n{text}")
    assert (found.of("confirmed"), found.of("refused")) == ({1, 2, 3, 5, 9}, {4})
    assert (found.has_ended, found.was_blocked, found.of("seen")) == (False, False, set())
    assert record.read('{"ended": []}').has_ended


@pytest.mark.parametrize(
    ("name", "image"),
    [
        ("headrace/broker:1", Image("headrace/broker", "1", "")),
        ("host:5000/broker", Image("host:5000/broker", "latest", "")),
        ("host:5000/broker:1", Image("host:5000/broker", "1", "")),
        ("broker@sha256:ab", Image("broker", "", "sha256:ab")),
        ("broker:1@sha256:ab", Image("broker", "", "sha256:ab")),
    ],
    ids=lambda each: str(each),
)
def test_an_image_is_told_to_the_chart_in_its_parts(name: str, image: Image) -> None:
    assert parse(name) == image


@pytest.mark.parametrize(
    ("builder", "save"),
    [
        ("docker", ["docker", "save", "-o", "b.tar", "broker:1"]),
        ("/usr/bin/podman", ["/usr/bin/podman", "save", "-o", "b.tar", "broker:1"]),
        ("buildah -v", ["buildah", "-v", "push", "broker:1", "docker-archive:b.tar:broker:1"]),
    ],
)
def test_each_builder_writes_an_archive(builder: str, save: list[str]) -> None:
    settings = SETTINGS._replace(builder=builder)
    commands = build_commands(settings, "broker", "broker:1", Path("b.tar"))
    assert commands[1] == save
    build = ["build", "--network=host", "--build-arg", "BASE=python", "-f"]
    assert " ".join(commands[0]).startswith(" ".join([builder, *build]))


def test_the_cluster_gets_an_image_by_the_users_command() -> None:
    command = ["ctr", "-n", "k8s.io", "images", "import", "a b.tar"]
    assert SETTINGS.load_command(Path("a b.tar")) == command


def test_a_program_that_fails_says_what_it_said() -> None:
    with pytest.raises(CommandError, match="exit 3: bad"):
        run(["sh", "-c", "echo bad >&2; exit 3"])


def test_a_wait_that_is_over_says_what_failed_at_last() -> None:
    def failing() -> bool:
        return bool(run(["sh", "-c", "exit 3"]))

    with pytest.raises(AssertionError, match="for the end: sh -c exit 3: exit 3"):
        Waiter().wait("the end", failing, 0)


@pytest.mark.parametrize("ephemeral", [False, True])
def test_resources_are_as_their_schemas_want_them(ephemeral: bool) -> None:
    assert judged("BrokerCluster", cluster_spec(ephemeral)) == []
    for each in [*topology(), scaler()]:
        assert judged(each["kind"], each["spec"]) == [], each["metadata"]["name"]


def test_every_kind_but_runs_of_the_pipeline_is_declared() -> None:
    files = sorted((CHART / "crds").glob("*.yaml"))
    kinds = {yaml.safe_load(each.read_text())["spec"]["names"]["kind"] for each in files}
    declared = {each["kind"] for each in [*topology(), scaler()]} | {"BrokerCluster"}
    assert kinds - declared == {"PipelineRun"}


def test_pods_that_use_brokers_may_no_more_than_brokers() -> None:
    pod = Workload("here", "image").publisher("amqp")["spec"]
    assert pod["securityContext"]["runAsUser"] == USER
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
