"""Names in the specs are those of the broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from headrace_broker.catalog.setting import (
    EXCHANGE_SETTINGS,
    QUEUE_SETTINGS,
    USER_LIMITS,
    VHOST_LIMITS,
    Choice,
    Integer,
)
from headrace_broker.config.configuration import Config, ListenersSection
from headrace_broker.model.flow_parameter import PARAMETERS
from headrace_broker.model.shard import SHARD_PORTS, SHARDS_MAX
from headrace_operator.builders import cluster as cluster_builder
from headrace_operator.builders import config_file
from headrace_operator.schema import struct_schema
from headrace_operator.specs import cluster as cluster_spec
from headrace_operator.specs.access import UserLimits, VhostLimits
from headrace_operator.specs.cluster_config import (
    BrokerConfig,
    ClusterConfig,
    FlowLimits,
    LimitsConfig,
    Listeners,
    LogConfig,
    LoggingConfig,
    RaftConfig,
    TelemetryConfig,
)
from headrace_operator.specs.field import INTEGER_MAX
from headrace_operator.specs.policy import PolicyDefinition


def bounds(schema: dict[str, Any]) -> tuple[Any, Any]:
    return schema.get("minimum"), schema.get("maximum")


def section(name: str) -> dict[str, Any]:
    """Properties of a section of the broker's configuration, by name."""
    _, parts = msgspec.json.schema_components([Config])
    properties: dict[str, Any] = parts["Config"]["properties"][name]
    reference = properties.get("$ref") or properties["anyOf"][0]["$ref"]
    return dict(parts[reference.rpartition("/")[2]]["properties"])


def own(struct: type[msgspec.Struct]) -> Iterable[tuple[str, dict[str, Any]]]:
    """Properties of a spec, by the names of its attributes."""
    schema = struct_schema(struct)["properties"]
    return [(each.name, schema[each.encode_name]) for each in msgspec.structs.fields(struct)]


@pytest.mark.parametrize(
    ("struct", "name"),
    [
        (RaftConfig, "raft"),
        (LimitsConfig, "limits"),
        (LogConfig, "log"),
        (ClusterConfig, "cluster"),
        (TelemetryConfig, "telemetry"),
    ],
)
def test_the_configuration_has_the_brokers_names_and_ranges(
    struct: type[msgspec.Struct], name: str
) -> None:
    broker = section(name)
    for key, schema in own(struct):
        assert bounds(schema) == bounds(broker[key]), key
        assert schema.get("multipleOf") == broker[key].get("multipleOf"), key


# Keys of the broker's configuration that are no field of a BrokerCluster's `config`, and why.
ELSEWHERE = {
    "the operator names nodes by their pods, and knows their places": (
        *("node.name", "node.data_dir", "cluster.name", "cluster.nodes", "cluster.listen"),
        *("cluster.admit_nodes", "http.hosts", "node.id"),
    ),
    "it differs by pod, and the operator does not look at the zones of machines": ("node.zone",),
    "further processes need ports that the operator's Services and policies lack": ("node.shards",),
    "the spec has it under `listeners`": (
        *("listeners.amqp", "listeners.amqps", "listeners.http", "listeners.https"),
        *("listeners.grpc", "listeners.grpcs", "listeners.metrics", "cluster.frames_port"),
    ),
    "the operator makes or mounts secrets and certificates": (
        *("default_user.name", "default_user.password_file"),
        *("cluster.join_secret_file", "cluster.join_secret_required"),
        *("tls.certificate_file", "tls.key_file", "tls.ca_file"),
        *("cluster_tls.certificate_file", "cluster_tls.key_file", "cluster_tls.ca_file"),
    ),
    "the spec has it under `tls.clients`": (
        *("tls.verify", "tls.fail_if_no_peer_cert", "tls.login_from"),
    ),
    "no volume of a pod has such a file; `pod.override` and `pod.extraEnv` can give it one": (
        *("tls.key_password", "tls.crl_file", "cluster_tls.crl_file", "logging.audit_file"),
    ),
    "the spec has it under `monitoring`": (
        *("metrics.anonymous", "metrics.per_object", "tracing.endpoint", "tracing.ratio"),
    ),
    "it follows from the size of the volume, and `flowLimits` changes it": (
        "limits.disk_free_bytes_min",
    ),
    "`flowLimits` sets it at run time, without a restart": tuple(
        f"limits.{name}" for name in FlowLimits.__struct_fields__ if name != "disk_free_limit"
    ),
}


def test_each_key_of_the_configuration_is_in_the_spec_or_has_a_reason_not_to_be() -> None:
    parts = BrokerConfig()
    in_spec = [
        f"{name}.{key}"
        for name in BrokerConfig.__struct_fields__
        for key in getattr(parts, name).__struct_fields__
        if (name, key) != ("logging", "level")  # an argument of the command
    ]
    elsewhere = [key for keys in ELSEWHERE.values() for key in keys]
    broker = [f"{name}.{key}" for name in Config.__struct_fields__ for key in section(name)]
    assert sorted([*in_spec, *elsewhere]) == sorted(broker)


def test_log_formats_are_the_brokers() -> None:
    schema = dict(own(LoggingConfig))["format"]
    assert sorted(schema["enum"]) == sorted(section("logging")["format"]["enum"])


def test_listeners_have_the_brokers_names_and_ports() -> None:
    broker = ListenersSection()
    for name in ("amqp", "http", "grpc"):
        assert getattr(broker, name).endswith(f":{getattr(Listeners(), name)}")
        assert hasattr(broker, f"{name}s")
        assert hasattr(Listeners(), f"{name}s")


def test_limits_of_flow_control_have_the_brokers_names_and_ranges() -> None:
    names = {key.replace("_", "-"): schema for key, schema in own(FlowLimits)}
    assert sorted(names) == sorted(PARAMETERS)
    for name, schema in names.items():
        parameter = PARAMETERS[name]
        if parameter.fraction_max:
            assert schema["x-kubernetes-int-or-string"], name
            assert schema["minimum"] == parameter.low
        else:
            assert bounds(schema) == (parameter.low, min(parameter.high, INTEGER_MAX)), name


@pytest.mark.parametrize(
    ("struct", "limits"), [(VhostLimits, VHOST_LIMITS), (UserLimits, USER_LIMITS)]
)
def test_limits_of_vhosts_and_users_are_the_brokers(
    struct: type[msgspec.Struct], limits: dict[str, Integer]
) -> None:
    properties = struct_schema(struct)["properties"]
    assert sorted(properties) == sorted(limits)
    for name, schema in properties.items():
        assert schema["maximum"] == min(limits[name].high, INTEGER_MAX), name


# Accepted by the broker and without effect there.
IDLE = {"queue-mode", "queue-version", "max-in-memory-length", "max-in-memory-bytes"}


def test_policies_set_what_the_broker_knows() -> None:
    settings = {**QUEUE_SETTINGS, **EXCHANGE_SETTINGS}
    known = {name for name, setting in settings.items() if setting.policy}
    assert set(struct_schema(PolicyDefinition)["properties"]) == known - IDLE
    for name, schema in struct_schema(PolicyDefinition)["properties"].items():
        setting = QUEUE_SETTINGS.get(name) or EXCHANGE_SETTINGS.get(name)
        assert setting is not None, name
        assert setting.policy, name
        if isinstance(setting.check, Integer):
            high = min(setting.check.high, INTEGER_MAX)
            assert bounds(schema) == (setting.check.low, high), name
        if isinstance(setting.check, Choice):
            assert sorted(schema["enum"]) == sorted(setting.check.values), name


def test_defaults_that_depend_on_the_pod_are_at_most_the_brokers() -> None:
    config = Config.__struct_fields__
    assert "log" in config
    assert section("log")["cache_bytes"]["default"] == config_file.CACHE_BYTES
    assert section("limits")["disk_free_bytes_min"]["default"] == config_file.DISK_FREE_BYTES


def test_shards_are_as_the_broker_has_them() -> None:
    assert cluster_spec.SHARDS_MAX == SHARDS_MAX
    assert cluster_builder.SHARD_PORTS == SHARD_PORTS
