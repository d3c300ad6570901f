"""Structural schemas from types: what becomes of ranges, defaults, docstrings and rules."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct

from headrace_operator.schema import SchemaError, escaped, struct_schema
from headrace_operator.specs.field import IMMUTABLE, Rule, Spec, keyed


class Inner(Spec, frozen=True, kw_only=True):
    """Something within.

    Attributes:
        size_max: how much of it there may
            be, as `text`.
    """

    size_max: Annotated[int, Meta(ge=1, le=9)] = 3
    note: str | None = None


class Outer(Spec, frozen=True, kw_only=True):
    RULES = (Rule("self.count > 0", "must be positive"),)

    count: Annotated[int, Meta(ge=0)]
    kind: Literal["B", "A"] = "A"
    inner: Inner = Inner()
    names: Annotated[list[Annotated[str, Meta(pattern="^a")]], keyed("x"), Meta(max_length=4)]
    free: dict[str, Any] | None = None
    labels: Annotated[dict[str, str], Meta(max_length=2)] | None = None
    size: Annotated[int | str, Meta(extra_json_schema={"pattern": "^[0-9]+$"})] = 1
    fixed: Annotated[str, IMMUTABLE] | None = None
    namespace: Annotated[str, IMMUTABLE] | None = None
    always: Annotated[str, IMMUTABLE] = "/"


def test_an_object_has_its_fields_in_camel_case_and_names_those_that_are_needed() -> None:
    schema = struct_schema(Outer)
    assert schema["type"] == "object"
    assert list(schema["properties"])[:3] == ["count", "kind", "inner"]
    assert schema["required"] == ["count", "names"]


def test_ranges_enums_patterns_and_sizes_are_kept() -> None:
    properties = struct_schema(Outer)["properties"]
    assert properties["count"] == {"type": "integer", "format": "int64", "minimum": 0}
    assert properties["kind"] == {"type": "string", "enum": ["A", "B"], "default": "A"}
    assert properties["names"] == {
        "type": "array",
        "items": {"type": "string", "pattern": "^a"},
        "maxItems": 4,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["x"],
    }
    assert properties["free"] == {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert properties["labels"] == {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "maxProperties": 2,
    }
    assert properties["size"] == {
        "x-kubernetes-int-or-string": True,
        "pattern": "^[0-9]+$",
        "default": 1,
    }


def test_the_default_of_an_object_says_all_that_is_within_it() -> None:
    inner = struct_schema(Outer)["properties"]["inner"]
    assert inner["default"] == {"sizeMax": 3}
    assert inner["properties"]["sizeMax"] == {
        "description": "How much of it there may be, as text.",
        "type": "integer",
        "format": "int32",
        "minimum": 1,
        "maximum": 9,
        "default": 3,
    }
    assert inner["properties"]["note"] == {"type": "string"}


def test_what_is_immutable_has_a_rule_and_what_may_be_absent_another_one() -> None:
    schema = struct_schema(Outer)
    unchanged = {"rule": "self == oldSelf", "message": "cannot be changed"}
    assert schema["properties"]["fixed"]["x-kubernetes-validations"] == [unchanged]
    assert schema["properties"]["always"]["x-kubernetes-validations"] == [unchanged]
    assert schema["x-kubernetes-validations"] == [
        {
            "rule": "has(self.fixed) == has(oldSelf.fixed)",
            "message": "fixed cannot be added, changed or removed",
        },
        {
            "rule": "has(self.__namespace__) == has(oldSelf.__namespace__)",
            "message": "namespace cannot be added, changed or removed",
        },
        {"rule": "self.count > 0", "message": "must be positive"},
    ]


@pytest.mark.parametrize(
    ("name", "rule"),
    [("plain", "plain"), ("in", "__in__"), ("a-b", "a__dash__b"), ("a.b", "a__dot__b")],
)
def test_names_are_written_as_cel_wants_them(name: str, rule: str) -> None:
    assert escaped(name) == rule


def test_a_type_that_schemas_do_not_have_is_refused() -> None:
    class Odd(Struct):
        value: tuple[int, str]

    with pytest.raises(SchemaError, match="TupleType"):
        struct_schema(Odd)

    class Either(Struct):
        value: bool | str

    with pytest.raises(SchemaError, match="no union that schemas have"):
        struct_schema(Either)
