"""The limits of flow control that a BrokerCluster names, set in its brokers at run time."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from headrace_operator.broker_api import BrokerApi
from headrace_operator.builders.cluster import Cluster
from headrace_operator.builders.config_file import flow_limits
from headrace_operator.operator_context import Operator
from headrace_operator.specs.kind import BROKER_CLUSTER, GROUP

LIMITS_ANNOTATION: Final = f"{GROUP}/flow-limits"  # names of those that the operator has set


async def keep_limits(
    operator: Operator, body: dict[str, Any], cluster: Cluster, api: BrokerApi
) -> None:
    """Reconcile the limits with the spec; those that it names no more are reset.

    Limits that somebody else has set, and the spec never named, stay as they are.

    Raises:
        BrokerError: a node refuses one, or none answers.
        KubeError: the API server refuses, or does not answer.
    """
    wanted = flow_limits(cluster)
    noted = _noted(body)
    if not wanted and not noted:
        return
    # They are noted first: one that is set and not noted would stay for ever.
    await _note(operator, body, noted, noted | wanted.keys())
    rows = {row["name"]: row for row in await api.rows("flow", "limits")}
    for name, value in wanted.items():
        shown = rows.get(name, {})
        if not shown.get("set") or not alike(shown.get("value"), value):
            await api.put({"value": number(value)}, "flow", "limits", name)
    for name in sorted(noted - wanted.keys()):
        await api.delete("flow", "limits", name)
    await _note(operator, body, noted | wanted.keys(), set(wanted))


def _noted(body: dict[str, Any]) -> set[str]:
    text = (body["metadata"].get("annotations") or {}).get(LIMITS_ANNOTATION) or ""
    return {name for name in text.split(",") if name}


async def _note(
    operator: Operator, body: dict[str, Any], before: set[str], names: set[str]
) -> None:
    if names != before:
        text = ",".join(sorted(names))
        await operator.annotate(BROKER_CLUSTER, body, LIMITS_ANNOTATION, text)


def number(value: int | str) -> int | float | str:
    """Return a limit as the brokers take it: fractions are numbers there."""
    with contextlib.suppress(ValueError):
        return float(value) if isinstance(value, str) else value
    return value


def alike(shown: Any, wanted: int | str) -> bool:
    """Return whether a limit has the wanted value."""
    return bool(shown == number(wanted) or str(shown) == str(wanted))
