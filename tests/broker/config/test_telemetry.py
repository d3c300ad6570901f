"""The configuration of telemetry, and where a node says that it can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_broker.config.configuration import Config, ConfigError, load_config
from headrace_broker.model.limits import TELEMETRY_AGE_HOURS, TELEMETRY_BYTES, TELEMETRY_ENTITIES

MINIMAL = """\
[node]
id = 1
name = "n1"
data_dir = "store"

[cluster]
nodes = [{ id = 1, name = "n1", address = "node-1.local:7101" }]
join_secret_file = "secret"
"""
TLS = """\
[tls]
certificate_file = "node.pem"
key_file = "node.key"
"""


def load(directory: Path, text: str = "", environment: dict[str, str] | None = None) -> Config:
    path = directory / "node.toml"
    path.write_text(MINIMAL + text)
    return load_config(path, environment or {})


def test_telemetry_is_on_and_bounded_unless_told_otherwise(tmp_path: Path) -> None:
    found = load(tmp_path).telemetry
    assert (found.enabled, found.bytes_max) == (True, TELEMETRY_BYTES)
    assert (found.age_hours_max, found.entities_max) == (TELEMETRY_AGE_HOURS, TELEMETRY_ENTITIES)


def test_telemetry_is_turned_off_by_the_environment(tmp_path: Path) -> None:
    assert not load(tmp_path, environment={"HEADRACE_TELEMETRY_ENABLED": "false"}).telemetry.enabled


@pytest.mark.parametrize(
    ("key", "value"), [("bytes_max", 1 << 20), ("age_hours_max", 0), ("entities_max", 10_001)]
)
def test_bound_out_of_range_is_refused_by_name(tmp_path: Path, key: str, value: int) -> None:
    with pytest.raises(ConfigError, match=rf"telemetry\.{key}: {value} is not allowed"):
        load(tmp_path, f"[telemetry]\n{key} = {value}\n")


@pytest.mark.parametrize(
    ("grpc", "grpcs", "address"),
    [
        ("10.0.0.5:7672", "", "10.0.0.5:7672"),
        ("0.0.0.0:7672", "", "node-1.local:7672"),
        ("[::]:7672", "", "node-1.local:7672"),
        ("", "0.0.0.0:7673", "node-1.local:7673"),
        ("", "", ""),
    ],
)
def test_address_is_one_that_others_can_reach(
    tmp_path: Path, grpc: str, grpcs: str, address: str
) -> None:
    environment = {"HEADRACE_LISTENERS_GRPC": grpc, "HEADRACE_LISTENERS_GRPCS": grpcs}
    config = load(tmp_path, TLS if grpcs else "", environment)
    assert config.grpc_address == address
