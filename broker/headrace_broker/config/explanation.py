"""Error text for an invalid configuration: key, value, and allowed values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

_HIDDEN: Final = "password"  # ends the names of keys whose values are never shown


def kinds(annotated: Any) -> tuple[Any, ...]:
    """Return the types that a field may have."""
    plain = _plain(annotated)
    return get_args(plain) if get_origin(plain) in (UnionType, Union) else (plain,)


def _plain(annotated: Any) -> Any:
    return get_args(annotated)[0] if hasattr(annotated, "__metadata__") else annotated


def explain(
    root: type[Struct], error: str, data: Any, sources: Mapping[str, str], path: Path | None
) -> str:
    """Turn msgspec's message into one that names key, value and the allowed values.

    `sources` are the variables that keys come from, `path` is the file of the others.
    """
    match = re.fullmatch(r"(.*?)(?: - at `\$\.?(.*)`)?", error, re.DOTALL)
    assert match is not None
    what, where = match[1], match[2] or ""
    field, value = _walk(root, where, data)
    unknown = re.search(r"unknown field `(.*)`", what)
    missing = re.search(r"missing required field `(.*)`", what)
    if unknown is not None or missing is not None:
        name = (unknown or missing)[1]  # type: ignore[index]
        where = f"{where}.{name}" if where else name
        keys = ", ".join(get_type_hints(_element(field)))
        what = f"unknown key; allowed are {keys}" if unknown is not None else "is missing"
    else:
        shown = "the value" if where.endswith(_HIDDEN) else f"{value!r:.80}"
        what = f"{shown} is not allowed; it must be {_allowed(field, what)}"
    label = sources.get(where.partition("[")[0]) or (
        str(path) if path is not None else "configuration"
    )
    return f"{label}: {where}: {what}"


def _walk(root: type[Struct], where: str, data: Any) -> tuple[Any, Any]:
    """Follow `a.b[0].c` through the types of `root` and through `data`."""
    field: Any = root
    for token in re.findall(r"[^.\[\]]+", where):
        if token.isdigit():
            data = data[int(token)]
            field = get_args(_plain(field))[0]
            continue
        field = get_type_hints(_element(field), include_extras=True)[token]
        data = data[token]
    return field, data


def _element(field: Any) -> Any:
    """Return the struct behind a field: itself, or what its tuple holds."""
    plain = _plain(field)
    return get_args(plain)[0] if get_args(plain) else plain


def _allowed(field: Any, otherwise: str) -> str:
    for meta in getattr(field, "__metadata__", ()):
        if meta.ge is not None:
            multiple = f", a multiple of {meta.multiple_of}" if meta.multiple_of else ""
            number = "a number" if isinstance(meta.ge, float) else "an integer"
            return f"{number} from {meta.ge} to {meta.le}{multiple}"
        if meta.description is not None:
            return str(meta.description)
    if get_origin(field) is Literal:
        return " or ".join(repr(value) for value in get_args(field))
    if field is bool:
        return "true or false"
    return "a table" if isinstance(field, type) and issubclass(field, Struct) else otherwise
