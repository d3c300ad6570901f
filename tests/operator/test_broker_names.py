"""What the specs say of the broker is what the broker says of itself."""

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
from headrace_broker.config import Config, ListenersSection
from headrace_broker.model.flow_parameter import PARAMETERS
from headrace_operator.builders import config_file
from headrace_operator.schema import struct_schema
from headrace_operator.specs.access import UserLimits, VhostLimits
from headrace_operator.specs.cluster_config import (
    FlowLimits,
    LimitsConfig,
    Listeners,
    LogConfig,
    LoggingConfig,
    RaftConfig,
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
    [(RaftConfig, "raft"), (LimitsConfig, "limits"), (LogConfig, "log")],
)
def test_the_configuration_has_the_brokers_names_and_ranges(
    struct: type[msgspec.Struct], name: str
) -> None:
    broker = section(name)
    for key, schema in own(struct):
        assert bounds(schema) == bounds(broker[key]), key
        assert schema.get("multipleOf") == broker[key].get("multipleOf"), key


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
