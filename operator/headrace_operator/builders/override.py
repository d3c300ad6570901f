"""Merging what a user says of a pod over what the operator says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merged(base: Any, override: Any) -> Any:
    """Return `base` with `override` over it.

    Objects are merged key by key, and null takes a key away. Lists of objects that all have a name
    are merged by name, what is new coming last; other lists are replaced, and an empty list clears.
    """
    if isinstance(base, Mapping) and isinstance(override, Mapping):
        found = dict(base)
        for key, value in override.items():
            if value is None:
                found.pop(key, None)
            else:
                found[key] = merged(found.get(key), value)
        return found
    if _named(base) and override and _named(override):
        return _merged_rows(base, override)
    if isinstance(override, Mapping):
        return merged({}, override)  # without its nulls
    return override


def _named(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, Mapping) and "name" in row for row in value
    )


def _merged_rows(base: list[Any], override: list[Any]) -> list[Any]:
    rows = {row["name"]: row for row in base}
    for row in override:
        rows[row["name"]] = merged(rows.get(row["name"], {}), row)
    return list(rows.values())
