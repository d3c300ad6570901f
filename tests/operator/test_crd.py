"""The CustomResourceDefinitions: structural, up to date, and with rules that hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from tests.operator.judge import filled, holds, judged, plain, schemas

from headrace_operator.crd import differences, files, main, manifest, resource_schema
from headrace_operator.specs.kind import BROKER_CLUSTER, KINDS, Kind

ROOT = Path(__file__).resolve().parents[2]
CRDS = ROOT / "charts" / "headrace" / "crds"


# ------------------------------------------------------------------------------ structure


def test_the_files_in_the_chart_are_up_to_date() -> None:
    assert differences(CRDS) == []


def test_the_check_names_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 0
    assert main([str(tmp_path), "--check"]) == 0
    (tmp_path / "queues.yaml").write_text("kind: Other\n")
    (tmp_path / "users.yaml").unlink()
    (tmp_path / "old.yaml").touch()
    assert main([str(tmp_path), "--check"]) == 1
    said = capsys.readouterr().err
    for sentence in (
        "queues.yaml is not up to date",
        "users.yaml is not there",
        "old.yaml belongs",
    ):
        assert sentence in said
    assert main([str(tmp_path)]) == 0
    assert main([str(tmp_path), "--check"]) == 0
    assert main([]) == 2


def test_there_is_a_file_for_each_kind() -> None:
    assert sorted(files()) == sorted(f"{kind.plural}.yaml" for kind in KINDS)
    assert len(KINDS) == 10


def test_names_are_told_apart() -> None:
    names = [name for kind in KINDS for name in (kind.plural, kind.singular, *kind.short_names)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_schema_is_structural(kind: Kind) -> None:
    for path, schema in schemas(resource_schema(kind)):
        free = schema.get("x-kubernetes-preserve-unknown-fields")
        assert "type" in schema or free or schema.get("x-kubernetes-int-or-string"), path
        assert not {"$ref", "anyOf", "oneOf", "allOf", "not", "definitions"} & schema.keys(), path
        assert not ("properties" in schema and "additionalProperties" in schema), path
        for key in schema.get("x-kubernetes-list-map-keys", ()):
            row = schema["items"]
            assert key in row["required"] or "default" in row["properties"][key], path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_rules_look_at_is_bounded(kind: Kind) -> None:
    """The API server refuses rules that may cost too much, which it reckons by these bounds."""
    for path, schema in schemas(resource_schema(kind)["properties"]["spec"]):
        if schema.get("type") == "array":
            assert "maxItems" in schema, path
        if "additionalProperties" in schema:
            assert "maxProperties" in schema, path
        if schema.get("type") == "string" and "x-kubernetes-validations" in schema:
            assert "maxLength" in schema or "enum" in schema, path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_bounds_of_numbers_are_such_as_the_api_server_compares_with(kind: Kind) -> None:
    """It takes the schema with others, and refuses every value of the field then."""
    for path, schema in schemas(resource_schema(kind)):
        for bound in ("minimum", "maximum"):
            assert abs(schema.get(bound, 0)) < 1 << 53, path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_field_is_described(kind: Kind) -> None:
    lacking = [
        f"{path}.{name}"
        for path, schema in schemas(resource_schema(kind)["properties"]["spec"])
        for name, each in schema.get("properties", {}).items()
        if not each.get("description") and not path.endswith("Ref")
    ]
    assert lacking == [
        each
        for each in lacking
        if each.endswith(
            ("Refs[].name", "imagePullSecrets[].name", ".credentials.name", ".certificate.name")
        )
    ]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_defaults_are_what_their_schemas_allow(kind: Kind) -> None:
    for path, schema in schemas(resource_schema(kind)):
        if "default" in schema:
            jsonschema.validate(schema["default"], plain(schema))
            for rule in schema.get("x-kubernetes-validations", ()):
                assert holds(rule["rule"], schema["default"], schema["default"]), (path, rule)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_columns_show_what_is_there(kind: Kind) -> None:
    schema = resource_schema(kind)
    for column in manifest(kind)["spec"]["versions"][0]["additionalPrinterColumns"]:
        path = column["jsonPath"]
        if path.startswith((".metadata", ".status.conditions")):
            continue
        here = schema
        for name in path.removeprefix(".").split("."):
            here = here["properties"][name]
        assert here["type"] == column["type"], path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_status_has_conditions_and_the_generation_it_is_about(kind: Kind) -> None:
    status = resource_schema(kind)["properties"]["status"]["properties"]
    assert status["observedGeneration"]["type"] == "integer"
    assert status["conditions"]["x-kubernetes-list-map-keys"] == ["type"]
    assert manifest(kind)["spec"]["versions"][0]["subresources"]["status"] == {}


def test_a_cluster_can_be_scaled_by_kubectl() -> None:
    version = manifest(BROKER_CLUSTER)["spec"]["versions"][0]
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.replicas"


# ------------------------------------------------------------------------------ rules


REF = {"clusterRef": {"name": "mill"}}
QUEUES = {**REF, "targetRef": {"name": "workers"}, "queues": [{"name": "orders"}]}
POLICY = {**REF, "pattern": ".*", "definition": {"expires": 1}}
RUN = {**REF, "job": "archive", "image": "pipeline:1"}


def tls(clients: Any) -> Any:
    return {"tls": {"clients": clients}}


ALLOWED: list[tuple[str, Any]] = [
    ("BrokerCluster", {}),
    ("BrokerCluster", {"replicas": 1, "storage": {"size": "100Mi", "ephemeral": True}}),
    ("BrokerCluster", {"tls": {"clients": {"mode": "Secret", "secretName": "web"}}}),
    (
        "BrokerCluster",
        {"tls": {"clients": {"mode": "Operator", "verify": "Required", "plain": False}}},
    ),
    ("BrokerCluster", {"flowLimits": {"memoryHighWatermark": "0.4", "diskFreeLimit": 1073741824}}),
    ("BrokerCluster", {"allowedNamespaces": ["*", "shop"]}),
    ("Vhost", {**REF, "name": "/", "limits": {"max-queues": 0}}),
    ("User", {**REF, "tags": ["monitoring"], "rotation": {"everyDays": 30}}),
    ("Permission", {**REF, "user": "ann", "configure": ".*"}),
    ("Exchange", {**REF, "type": "topic", "arguments": {"alternate-exchange": "other"}}),
    (
        "Queue",
        {**REF, "replicas": 5, "arguments": {"x-max-length": 10, "x-single-active-consumer": True}},
    ),
    ("Queue", {**REF, "type": "classic", "durable": False, "autoDelete": True}),
    ("Binding", {**REF, "source": "amq.topic", "destination": {"queue": "orders"}}),
    ("Policy", {**REF, "pattern": "^a", "definition": {"max-length": 5, "unheard-of": {"a": 1}}}),
    ("ConsumerScaler", QUEUES),
    ("PipelineRun", RUN),
]

REFUSED: list[tuple[str, Any, str]] = [
    ("BrokerCluster", {"replicas": 0}, "minimum of 1"),
    ("BrokerCluster", {"replicas": 17}, "maximum of 16"),
    ("BrokerCluster", {"listeners": {"amqp": 7100}}, "no two listeners"),
    ("BrokerCluster", {"pod": {"preStopSleepSeconds": 60}}, "at least 15 more"),
    ("BrokerCluster", {"storage": {"size": "many"}}, "does not match"),
    ("BrokerCluster", {"tls": {"clients": {"plain": False}}}, "without TLS"),
    ("BrokerCluster", {"tls": {"internal": {"mode": "Secret"}}}, "secretName is for mode Secret"),
    ("BrokerCluster", tls({"mode": "Operator", "secretName": "x"}), "secretName is"),
    ("BrokerCluster", tls({"mode": "Operator", "loginFrom": "CommonName"}), "needs verify"),
    ("BrokerCluster", {"tls": {"certificates": {"days": 20}}}, "less than days"),
    ("BrokerCluster", {"tls": {"certificates": {"authorityDays": 100}}}, "at least twice"),
    ("BrokerCluster", {"config": {"raft": {"heartbeatTicks": 10}}}, "heartbeatTicks must be less"),
    ("BrokerCluster", {"config": {"raft": {"tickMs": 5}}}, "minimum of 10"),
    ("BrokerCluster", {"config": {"log": {"segmentBytes": 1048576}}}, "at least twice"),
    ("BrokerCluster", {"flowLimits": {"memoryHighWatermark": "1.5"}}, "does not match"),
    ("BrokerCluster", {"allowedNamespaces": ["Shop"]}, "does not match"),
    ("BrokerCluster", {"sise": 1}, "unexpected"),
    ("Vhost", {}, "'clusterRef' is a required property"),
    ("Vhost", {**REF, "limits": {"max-quues": 1}}, "unexpected"),
    ("User", {**REF, "tags": ["root"]}, "is not one of"),
    ("BrokerCluster", {"replicas": 5, "shards": 4}, "replicas times shards are 16"),
    ("BrokerCluster", {"replicas": 1, "shards": 9}, "maximum of 8"),
    ("User", {**REF, "withoutPassword": True, "password": {"name": "s"}}, "stands alone"),
    ("User", {**REF, "rotation": {}, "password": {"name": "s"}}, "that the operator makes"),
    ("Permission", {**REF}, "one of user and userRef"),
    ("Permission", {**REF, "user": "a", "userRef": {"name": "a"}}, "one of user and userRef"),
    ("Queue", {**REF, "autoDelete": True}, "durable and not auto-delete"),
    ("Queue", {**REF, "type": "classic", "replicas": 3}, "one replica"),
    ("Queue", {**REF, "replicas": 9}, "maximum of 7"),
    ("Binding", {**REF, "source": "", "destination": {"queue": "q"}}, "default exchange"),
    ("Binding", {**REF, "source": "x", "destination": {}}, "one of queue and exchange"),
    ("Policy", {**REF, "pattern": ".*", "definition": {}}, "non-empty|enough"),
    ("Policy", {**REF, "pattern": ".*", "definition": {"overflow": "drop"}}, "is not one of"),
    ("Policy", {**POLICY, "operator": True, "applyTo": "exchanges"}, "for queues"),
    ("ConsumerScaler", {**QUEUES, "minReplicas": 5, "maxReplicas": 4}, "must not exceed"),
    ("ConsumerScaler", {**QUEUES, "queues": []}, "non-empty|too short"),
    ("PipelineRun", {**RUN, "job": "mine"}, "is not one of"),
    ("PipelineRun", {**RUN, "storage": {"ephemeral": True, "claimName": "c"}}, "exclude each"),
    ("PipelineRun", {**RUN, "master": "k8s://https://a"}, "needs serviceAccountName"),
    ("PipelineRun", {**RUN, "conf": {"hadoop.a": "b"}}, "begin with spark"),
    ("PipelineRun", {**RUN, "job": "compact", "conf": {"spark.a": "b"}}, "without Spark"),
]  # fmt: skip

CHANGES: list[tuple[str, Any, Any, str]] = [
    ("BrokerCluster", {"storage": {"size": "10Gi"}}, {"storage": {"size": "5Gi"}}, "cannot shrink"),
    ("BrokerCluster", {"storage": {"size": "1Gi"}}, {"storage": {"size": "1025Mi"}}, ""),
    ("BrokerCluster", {}, {"storage": {"ephemeral": True}}, "ephemeral cannot be changed"),
    ("BrokerCluster", {}, {"storage": {"storageClassName": "fast"}}, "storageClassName cannot"),
    ("BrokerCluster", {}, {"tls": {"internal": {"mode": "Disabled"}}}, "turned on or off"),
    ("BrokerCluster", {}, {"tls": {"internal": {"mode": "Secret", "secretName": "s"}}}, ""),
    ("BrokerCluster", {}, {"clusterDomain": "cluster.local"}, "cannot be added"),
    ("BrokerCluster", {}, {"replicas": 5, "image": "other"}, ""),
    ("BrokerCluster", {"shards": 2}, {"shards": 1}, "shards cannot be lowered"),
    ("BrokerCluster", {}, {"shards": 2}, ""),
    ("BrokerCluster", {"shards": 2}, {}, ""),
    ("Vhost", {**REF}, {"clusterRef": {"name": "other"}}, "cannot be changed"),
    ("Vhost", {**REF, "name": "a"}, {**REF, "name": "b"}, "cannot be changed"),
    ("Vhost", {**REF, "name": "a"}, {**REF}, "cannot be added, changed or removed"),
    ("User", {**REF}, {**REF, "tags": ["management"]}, ""),
    ("Permission", {**REF, "user": "a"}, {**REF, "userRef": {"name": "a"}}, "cannot be added"),
    ("Exchange", {**REF}, {**REF, "type": "fanout"}, "cannot be changed"),
    ("Queue", {**REF, "replicas": 3}, {**REF, "replicas": 5}, ""),
    ("Queue", {**REF}, {**REF, "vhost": "other"}, "cannot be changed"),
    ("Binding", {**REF, "source": "x", "destination": {"queue": "q"}},
     {**REF, "source": "x", "destination": {"queue": "r"}}, "cannot be changed"),
    ("Policy", {**REF, "pattern": "a", "definition": {"expires": 1}},
     {**REF, "pattern": "b", "definition": {"expires": 2}}, ""),
    ("ConsumerScaler", QUEUES, {**QUEUES, "targetRef": {"name": "x"}}, "cannot be changed"),
    ("PipelineRun", RUN, {**RUN, "job": "flow"}, "cannot be changed"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "spec"), ALLOWED)
def test_what_should_be_allowed_is(kind: str, spec: Any) -> None:
    assert judged(kind, spec) == []


@pytest.mark.parametrize(("kind", "spec", "reason"), REFUSED)
def test_what_cannot_be_is_refused_with_a_reason(kind: str, spec: Any, reason: str) -> None:
    found = judged(kind, spec)
    assert found
    assert re.search(reason, found[0]), found


@pytest.mark.parametrize(("kind", "old", "new", "reason"), CHANGES)
def test_changes_are_allowed_or_refused_with_a_reason(
    kind: str, old: Any, new: Any, reason: str
) -> None:
    found = judged(kind, new, old)
    assert bool(found) == bool(reason), found
    assert not reason or reason in found[0]


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("mill", True), ("m" * 40, True), ("m" * 41, False), ("1mill", False), ("a.b", False)],
)
def test_the_name_of_a_cluster_leaves_room_for_those_made_of_it(name: str, allowed: bool) -> None:
    assert (judged("BrokerCluster", {}, name=name) == []) is allowed


def test_every_immutable_field_of_every_kind_has_a_rule() -> None:
    """Identity: what of a resource says which thing in the broker it is."""
    identity = {"clusterRef", "vhost", "name", "user", "userRef", "source", "destination", "type"}
    for kind in KINDS:
        for name, schema in resource_schema(kind)["properties"]["spec"]["properties"].items():
            if name in identity:
                rules = [rule["rule"] for rule in schema["x-kubernetes-validations"]]
                assert "self == oldSelf" in rules, (kind.name, name)


def test_specs_are_decoded_with_the_defaults_of_the_schema() -> None:
    for kind in KINDS:
        schema = resource_schema(kind)["properties"]["spec"]
        required = {
            "clusterRef": {"name": "mill"},
            "targetRef": {"name": "workers"},
            "queues": [{"name": "orders"}],
            "source": "x",
            "destination": {"queue": "q"},
            "pattern": "p",
            "definition": {"expires": 1},
            "job": "flow",
            "image": "i",
        }
        given = {name: required[name] for name in schema.get("required", ())}
        bare = msgspec.convert(given, kind.spec)
        full = msgspec.convert(filled(schema, given), kind.spec)
        assert bare == full
