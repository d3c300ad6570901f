"""Settings of the operator from its environment."""

from __future__ import annotations

import pytest

from headrace_operator.settings import Settings, read_settings


def test_without_variables_there_are_defaults() -> None:
    assert read_settings({}) == Settings()


def test_variables_say_what_is_set() -> None:
    found = read_settings(
        {
            "HEADRACE_OPERATOR_BROKER_IMAGE": "here/broker:2",
            "HEADRACE_OPERATOR_SCOPE": "Namespaces",
            "HEADRACE_OPERATOR_RESYNC_SECONDS": "30",
            "HEADRACE_OPERATOR_FINALIZER_SECONDS": "0",
            "HEADRACE_OPERATOR_METRICS_PORT": "9090",
        }
    )
    assert found == Settings("here/broker:2", "Namespaces", 30, 0, metrics_port=9090)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("SCOPE", "World", "'World' is not Cluster or Namespaces"),
        ("RESYNC_SECONDS", "often", "'often' is no number"),
        ("RESYNC_SECONDS", "0", "0 is not within 1 and 86400"),
        ("METRICS_PORT", "70000", "70000 is not within 0 and 65535"),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, value: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"HEADRACE_OPERATOR_{name}: {problem}"):
        read_settings({f"HEADRACE_OPERATOR_{name}": value})
