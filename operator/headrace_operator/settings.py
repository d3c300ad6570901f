"""Settings of the operator from its environment: see the chart's Deployment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

PREFIX: Final = "HEADRACE_OPERATOR_"
DEFAULT_IMAGE: Final = "headrace/broker:latest"


class Settings(NamedTuple):
    """Settings of the operator.

    Attributes:
        broker_image: of clusters whose spec names none.
        scope: whether all namespaces are watched, or those that the command line names.
        resync_seconds: between two looks at what nobody has changed.
        finalizer_seconds: how long the deletion of a resource waits for a cluster that does not
            answer.
        step_seconds: between two looks while something changes.
        metrics_port: where Prometheus reads; 0 for nowhere.
    """

    broker_image: str = DEFAULT_IMAGE
    scope: Literal["Cluster", "Namespaces"] = "Cluster"
    resync_seconds: float = 60
    finalizer_seconds: float = 120
    step_seconds: float = 2
    metrics_port: int = 0


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Return what the environment says, with defaults for the rest.

    Raises:
        ValueError: a variable has a value that cannot be; the text names it.
    """
    scope = environment.get(f"{PREFIX}SCOPE", "Cluster")
    if scope not in ("Cluster", "Namespaces"):
        raise ValueError(f"{PREFIX}SCOPE: '{scope}' is not Cluster or Namespaces")
    return Settings(
        broker_image=environment.get(f"{PREFIX}BROKER_IMAGE") or DEFAULT_IMAGE,
        scope="Cluster" if scope == "Cluster" else "Namespaces",
        resync_seconds=_number(environment, "RESYNC_SECONDS", 60, 1, 86_400),
        finalizer_seconds=_number(environment, "FINALIZER_SECONDS", 120, 0, 86_400),
        step_seconds=_number(environment, "STEP_SECONDS", 2, 0.05, 3600),
        metrics_port=int(_number(environment, "METRICS_PORT", 0, 0, 65_535)),
    )


def _number(
    environment: Mapping[str, str], name: str, default: float, low: float, high: float
) -> float:
    text = environment.get(PREFIX + name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{PREFIX}{name}: '{text}' is no number") from None
    if not low <= value <= high:
        raise ValueError(f"{PREFIX}{name}: {text} is not within {low:g} and {high:g}")
    return value
