"""An API server's judgement of our custom resources: their schemas, defaults, and rules in CEL."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from typing import Any

import celpy
import jsonschema
import msgspec
from celpy import celtypes
from celpy.adapter import json_to_cel

from headrace_operator.builders.quantity import quantity_bytes
from headrace_operator.crd import resource_schema
from headrace_operator.specs.kind import KINDS, Kind

Schema = dict[str, Any]


def by_name(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)


def schemas(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """A schema and all within it, with their paths."""
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from schemas(each, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from schemas(schema[key], f"{path}[]")


def plain(schema: Schema) -> Schema:
    """A schema as other validators know it."""
    found = copy.deepcopy(schema)
    for _, each in schemas(found):
        if each.pop("x-kubernetes-int-or-string", None):
            each["type"] = ["integer", "string"]
        if "properties" in each and not each.get("x-kubernetes-preserve-unknown-fields"):
            each["additionalProperties"] = False
    return found


def filled(schema: Schema, value: Any) -> Any:
    """A value with the defaults of its schema, as the API server fills them in."""
    if isinstance(value, list):
        return [filled(schema.get("items", {}), each) for each in value]
    if not isinstance(value, dict):
        return value
    found = dict(value)
    for name, each in schema.get("properties", {}).items():
        if name not in found and "default" in each:
            found[name] = copy.deepcopy(each["default"])
        if name in found:
            found[name] = filled(each, found[name])
    return found


def _quantity(text: celtypes.StringType) -> celtypes.IntType:
    return celtypes.IntType(quantity_bytes(str(text)))


def _compare(one: celtypes.IntType, other: celtypes.IntType) -> celtypes.IntType:
    return celtypes.IntType((one > other) - (one < other))


def _size(value: Any) -> celtypes.IntType:
    return celtypes.IntType(len(value))


ENVIRONMENT = celpy.Environment()


@functools.cache
def compiled(rule: str) -> celpy.Runner:
    functions: Any = {"quantity": _quantity, "compareTo": _compare, "size": _size}
    return ENVIRONMENT.program(ENVIRONMENT.compile(rule), functions=functions)


def holds(rule: str, value: Any, old: Any = None) -> bool:
    """Evaluate a rule; what looks at the old value holds where there is none."""
    if "oldSelf" in rule and old is None:
        return True
    program = compiled(rule)
    names = {"self": json_to_cel(value)}
    if old is not None:
        names["oldSelf"] = json_to_cel(old)
    return bool(program.evaluate(names))


def refusals(schema: Schema, value: Any, old: Any = None) -> list[str]:
    """Messages of the rules that a value breaks, all the way down."""
    rules = schema.get("x-kubernetes-validations", ())
    found = [rule["message"] for rule in rules if not holds(rule["rule"], value, old)]
    if isinstance(value, dict):
        for name, each in schema.get("properties", {}).items():
            if name in value:
                before = old.get(name) if isinstance(old, dict) else None
                found += refusals(each, value[name], before)
    if isinstance(value, list):
        for row in value:
            found += refusals(schema.get("items", {}), row)
    return found


def judged(kind: str, spec: Any, old: Any = None, name: str = "mill") -> list[str]:
    """Return the API server's error for a resource: by its schema, else by its rules."""
    schema = resource_schema(by_name(kind))
    resource = filled(schema, {"metadata": {"name": name}, "spec": spec})
    validator = jsonschema.Draft202012Validator(plain(schema["properties"]["spec"]))
    errors = [
        f"{error.json_path}: {error.message}" for error in validator.iter_errors(resource["spec"])
    ]
    if errors:
        return errors
    before = filled(schema, {"metadata": {"name": name}, "spec": old}) if old is not None else None
    found = refusals(schema, resource, before)
    if not found:
        msgspec.convert(resource["spec"], by_name(kind).spec)
    return found
