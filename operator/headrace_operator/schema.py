"""Structural schemas, as CustomResourceDefinitions want them, from typed specs.

A Struct becomes an object with a property for each field; ranges, patterns, sizes and enums come
from the annotations, descriptions from the docstrings, rules in CEL from the attribute `RULES`.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from headrace_operator.specs.field import Rule

_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_RULES: Final = "x-kubernetes-validations"
INT32_MAX: Final = (1 << 31) - 1

# Words that are no names in CEL.
_RESERVED: Final = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for"),
        *("function", "if", "import", "let", "loop", "package", "namespace", "return"),
    )
)

Schema = dict[str, Any]


class SchemaError(Exception):
    """A type cannot be said in a structural schema; the text says which and why."""


def escaped(name: str) -> str:
    """Return the name of a property as rules in CEL have to write it."""
    if name in _RESERVED:
        return f"__{name}__"
    for text, code in (
        ("__", "__underscores__"),
        (".", "__dot__"),
        ("-", "__dash__"),
        ("/", "__slash__"),
    ):
        name = name.replace(text, code)
    return name


def struct_schema(struct: type[msgspec.Struct]) -> Schema:
    """Return the schema of a Struct.

    Raises:
        SchemaError: a field has a type that structural schemas do not have.
    """
    return _schema(types.type_info(struct))


def _schema(kind: types.Type) -> Schema:
    """Return the schema of a type."""
    if isinstance(kind, types.Metadata):
        return _annotated(kind)
    if isinstance(kind, types.StructType):
        return _object(kind)
    if isinstance(kind, types.UnionType):
        return _union(kind)
    if isinstance(kind, types.ListType):
        sizes = {"minItems": kind.min_length, "maxItems": kind.max_length}
        return {"type": "array", "items": _schema(kind.item_type), **_given(sizes)}
    if isinstance(kind, types.DictType):
        return _map(kind)
    if isinstance(kind, types.LiteralType):
        return {"type": "string", "enum": [str(value) for value in kind.values]}
    if isinstance(kind, types.AnyType):
        return {_PRESERVE: True}
    return _scalar(kind)


def _scalar(kind: types.Type) -> Schema:
    if isinstance(kind, types.BoolType):
        return {"type": "boolean"}
    if isinstance(kind, types.IntType):
        form = "int32" if kind.le is not None and kind.le <= INT32_MAX else "int64"
        bounds = {"minimum": kind.ge, "maximum": kind.le, "multipleOf": kind.multiple_of}
        return {"type": "integer", "format": form, **_given(bounds)}
    if isinstance(kind, types.FloatType):
        return {"type": "number", **_given({"minimum": kind.ge, "maximum": kind.le})}
    if isinstance(kind, types.StrType):
        sizes = {"minLength": kind.min_length, "maxLength": kind.max_length}
        return {"type": "string", **_given(sizes), **_given({"pattern": kind.pattern})}
    raise SchemaError(f"{type(kind).__name__} has no form in a structural schema")


def _given(values: dict[str, Any]) -> Schema:
    return {key: value for key, value in values.items() if value is not None}


def _annotated(kind: types.Metadata) -> Schema:
    schema = _schema(kind.type)
    schema.update(kind.extra_json_schema or {})
    if (kind.extra or {}).get("immutable"):
        unchanged = _rule(Rule("self == oldSelf", "cannot be changed"))
        schema[_RULES] = [*schema.get(_RULES, []), unchanged]
    return schema


def _rule(rule: Rule) -> Schema:
    return {"rule": rule.rule, "message": rule.message}


def _union(kind: types.UnionType) -> Schema:
    found = [each for each in kind.types if not isinstance(each, types.NoneType)]
    if len(found) == 1:
        return _schema(found[0])
    if {type(each) for each in found} == {types.IntType, types.StrType}:
        return {"x-kubernetes-int-or-string": True}
    raise SchemaError(f"{[type(each).__name__ for each in found]} is no union that schemas have")


def _map(kind: types.DictType) -> Schema:
    sizes = _given({"maxProperties": kind.max_length, "minProperties": kind.min_length})
    if isinstance(kind.value_type, types.AnyType):
        return {"type": "object", _PRESERVE: True, **sizes}
    return {"type": "object", "additionalProperties": _schema(kind.value_type), **sizes}


def _object(kind: types.StructType) -> Schema:
    struct = kind.cls
    described = _attributes(struct)
    properties: Schema = {}
    for field in kind.fields:
        schema = _schema(field.type)
        if field.name in described:
            schema = {"description": described[field.name], **schema}
        default = _default(field)
        if default is not None:
            schema["default"] = default
        properties[field.encode_name] = schema
    required = [field.encode_name for field in kind.fields if field.required]
    rules = [*_presence_rules(kind.fields), *getattr(struct, "RULES", ())]
    found: Schema = {"type": "object"}
    if properties:
        found["properties"] = properties
    if required:
        found["required"] = required
    if getattr(struct, "OPEN", False):
        found[_PRESERVE] = True
    if rules:
        found[_RULES] = [_rule(each) for each in rules]
    return found


def _default(field: types.Field) -> Any:
    """Return what the API server fills in, None for nothing."""
    # An empty list or map says nothing.
    return None if field.default is msgspec.NODEFAULT else _written(field.default)


def _written(value: Any) -> Any:
    """Return a default in its written form: complete, because rules are tried on it."""
    if not isinstance(value, msgspec.Struct):
        return value
    found = {
        field.encode_name: _written(getattr(value, field.name))
        for field in msgspec.structs.fields(value)
    }
    return {name: each for name, each in found.items() if each not in (None, [])}


def _presence_rules(fields: tuple[types.Field, ...]) -> list[Rule]:
    """Return rules for fields that may be absent and never change; their own do not see that."""
    found = []
    for field in fields:
        if not _immutable(field.type) or field.required or _default(field) is not None:
            continue
        name = escaped(field.encode_name)
        rule = f"has(self.{name}) == has(oldSelf.{name})"
        found.append(Rule(rule, f"{field.encode_name} cannot be added, changed or removed"))
    return found


def _immutable(kind: types.Type) -> bool:
    if isinstance(kind, types.Metadata):
        return bool((kind.extra or {}).get("immutable")) or _immutable(kind.type)
    return isinstance(kind, types.UnionType) and any(_immutable(each) for each in kind.types)


def _attributes(struct: type) -> dict[str, str]:
    """Return what the docstrings of a Struct and its bases say of their attributes."""
    found: dict[str, str] = {}
    for cls in reversed(struct.__mro__):
        _, _, text = (inspect.cleandoc(cls.__doc__ or "")).partition("Attributes:\n")
        for match in re.finditer(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", text, re.MULTILINE):
            sentence = re.sub(r"\s+", " ", match[2]).strip().replace("`", "")
            found[match[1]] = sentence[:1].upper() + sentence[1:]
    return found
