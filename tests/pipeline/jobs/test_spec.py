"""Output of `spec`: equal to the operator's, and valid for Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import msgspec
import pytest
import yaml
from click.testing import CliRunner

from headrace_operator.builders.cluster import Cluster
from headrace_operator.handlers.pipeline_run import driver_of
from headrace_operator.specs.cluster import BrokerClusterSpec
from headrace_operator.specs.pipeline_run import PipelineRunSpec
from headrace_pipeline.cli.main import group
from headrace_pipeline.cli.report import report as report_command
from headrace_pipeline.cli.spec import spec
from headrace_pipeline.jobs.driver import driver_manifests

ROOT = Path(__file__).resolve().parents[3]
COPIES = (
    ROOT / "operator" / "headrace_operator" / "builders" / "driver.py",
    ROOT / "pipeline" / "headrace_pipeline" / "jobs" / "driver.py",
)
COMMON = (
    *("--name", "nightly", "--namespace", "shop", "--credentials", "login"),
    *("--option", "table=/data/a"),
    *("--request", "cpu=500m", "--request", "memory=1Gi", "--limit", "memory=2Gi"),
    *("--storage", "20Gi", "--storage-class", "fast", "--image", "headrace/pipeline:1"),
)
SPARK = ("--conf", "spark.driver.memory=1g")


def printed(*words: str) -> list[dict[str, Any]]:
    conf = () if words[0] == "compact" else SPARK
    result = CliRunner().invoke(spec, [*words, *COMMON, *conf])
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all(result.output))


def without_run(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest without what the operator adds of its own: owner and who manages it."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            gone = ("ownerReferences", "app.kubernetes.io/managed-by")
            return {key: strip(each) for key, each in value.items() if key not in gone}
        return [strip(each) for each in value] if isinstance(value, list) else value

    found: dict[str, Any] = strip(manifest)
    return found


def test_the_manifests_of_drivers_are_made_by_the_same_file_in_both_places() -> None:
    operator, pipeline = (path.read_text(encoding="utf-8") for path in COPIES)
    assert operator == pipeline


@pytest.mark.parametrize(("job", "form"), [("archive", "statefulset"), ("report", "job")])
@pytest.mark.parametrize("master", ["local[*]", "spark://a:7077"])
def test_of_a_printed_run_the_operator_makes_what_is_printed_without_it(
    job: str, form: str, master: str
) -> None:
    [run] = printed(job, "--cluster", "mill", "--master", master)
    run["metadata"]["uid"] = "u"
    read = msgspec.convert(run["spec"], PipelineRunSpec)
    cluster = Cluster("mill", "shop", "u", BrokerClusterSpec(), "i", 3, 3)
    made = driver_manifests(driver_of(run, read, cluster, ""))  # type: ignore[arg-type]
    plain = printed(job, "--kind", form, "--endpoints", "mill.shop.svc:7672", "--master", master)
    assert [without_run(each) for each in made] == plain


@pytest.mark.parametrize(("job", "form"), [("flow", "statefulset"), ("compact", "job")])
def test_kubernetes_takes_what_is_printed(job: str, form: str) -> None:
    for manifest in printed(job, "--kind", form, "--endpoints", "a:1", "--ca", "authority"):
        kubernetes_validate.validate(manifest, "1.32", strict=True)


def test_an_application_of_spark_has_the_same_arguments_and_files() -> None:
    words = ("--kind", "sparkapplication", "--endpoints", "a:1", "--ca", "authority")
    [found] = printed("archive", *words)
    assert found["kind"] == "SparkApplication"
    arguments = found["spec"]["driverArgs"]
    assert arguments[:2] == ["run", "archive"]
    assert {"--table=/data/a", "--endpoints=a:1", "--tls"} <= set(arguments)
    conf = found["spec"]["sparkConf"]
    assert conf["spark.driver.memory"] == "1g"
    for role in ("driver", "executor"):
        assert conf[f"spark.kubernetes.{role}.secrets.login"] == "/etc/headrace/credentials"
    assert not [each for each in arguments if "spark." in each]
    policy = found["spec"]["applicationTolerations"]["restartConfig"]["restartPolicy"]
    assert policy == "Always"


@pytest.mark.parametrize("job", ["archive", "flow", "report", "replay", "compact"])
@pytest.mark.parametrize("master", ["local[*]", "k8s://https://kubernetes.default.svc"])
def test_each_command_takes_the_arguments_with_which_it_is_run(job: str, master: str) -> None:
    form = "statefulset" if job in ("archive", "flow") else "job"
    words = ["--endpoints", "a:1", "--ca", "authority", *(SPARK if job != "compact" else ())]
    words += ["--credentials", "login", "--certificate", "own", "--master", master]
    for kind in (form, "sparkapplication"):
        result = CliRunner().invoke(spec, [job, "--kind", kind, *words])
        assert result.exit_code == 0, result.output
        last = list(yaml.safe_load_all(result.output))[-1]["spec"]
        if kind == form:
            arguments = last["template"]["spec"]["containers"][0]["args"]
        else:
            arguments = last["driverArgs"]
        taken = CliRunner().invoke(group, [*arguments, "--help"])  # after all others were read
        assert taken.exit_code == 0, taken.output
        assert CliRunner().invoke(group, [*arguments, "--no-such", "--help"]).exit_code == 2


def test_what_a_job_that_ends_writes_is_on_its_volume() -> None:
    [_, manifest] = printed("report", "--kind", "job", "--endpoints", "a:1")
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    env = {each["name"]: each.get("value") for each in container["env"]}
    [out] = [each for each in report_command.params if each.name == "out"]
    assert env[str(out.envvar)] == "/data/report.html"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["archive", "--kind", "job", "--endpoints", "a:1"], "archive runs as statefulset"),
        (["report", "--kind", "statefulset", "--endpoints", "a:1"], "report runs as job"),
        (["archive"], "needs the name of its BrokerCluster"),
        (["archive", "--option", "table"], "must be NAME=VALUE"),
        (["compact", *SPARK], "option conf: compact runs without Spark: leave it out"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], said: str) -> None:
    result = CliRunner().invoke(spec, words)
    assert result.exit_code != 0
    assert said in str(result.exception)


def test_other_kinds_need_endpoints() -> None:
    result = CliRunner().invoke(spec, ["archive", "--kind", "statefulset"])
    assert result.exit_code == 2
    assert "needs --endpoints" in result.output
