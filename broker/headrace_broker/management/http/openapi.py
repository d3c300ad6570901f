"""The OpenAPI document, made of the routes that the server registers.

Source: OpenAPI Specification 3.1.0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from headrace_broker.management.http.listing import PARAMETERS
from headrace_broker.management.http.request_id import HEADER
from headrace_broker.management.http.route import JSON, NOBODY, Parameter, Route
from headrace_broker.model import build_info

_REF: Final = "#/components/schemas/{name}"
_MEANINGS: Final = {
    200: "Done; what was asked for.",
    201: "Created.",
    202: "Begun; it goes on by itself.",
    204: "Done; there is nothing to tell.",
    400: "A field, parameter or name breaks a rule; the reason names both.",
    401: "The log-in is missing or wrong.",
    403: "The user may not do that; the reason says what is needed.",
    404: "Something that is named is not there.",
    408: "The body does not come.",
    409: "It cannot be done as things are.",
    413: "The body is too large.",
    429: "Too many log-ins have failed, or too many requests wait for their turn.",
    503: "Too few nodes answer, or a check failed.",
}
_USUAL: Final = {"GET": (200,), "PUT": (201, 204), "DELETE": (204,), "POST": (), "PATCH": (204,)}
_ERROR: Final = "Error"
_PAGE: Final = {
    "filtered_count": {"type": "integer"},
    "item_count": {"type": "integer"},
    "page": {"type": "integer"},
    "page_count": {"type": "integer"},
    "page_size": {"type": "integer"},
    "total_count": {"type": "integer"},
}
_ERROR_SCHEMA: Final = {
    "type": "object",
    "required": ["error", "reason"],
    "properties": {
        "error": {"type": "string", "description": "A word for programs."},
        "reason": {"type": "string", "description": "A sentence that names field and rule."},
    },
}


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the document that describes routes."""
    rows = sorted(routes, key=lambda row: (row.template, row.method))
    types = _types(rows)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    named = dict(zip(map(repr, types), schemas, strict=True))
    known = _Schemas(named, components)
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        paths.setdefault(row.template, {})[row.method.lower()] = _operation(row, known)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headrace",
            "version": build_info.VERSION,
            "summary": "Management of a cluster: paths, fields and codes of RabbitMQ's API.",
            "description": (
                "Names in paths are percent-encoded; the vhost '/' is %2F. Each answer carries "
                f"{HEADER}, the name of the request in the log: the client's own if it sends one."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"basic": []}],
        "tags": [{"name": name} for name in sorted({row.heading for row in rows})],
        "paths": paths,
        "components": {
            "schemas": {_ERROR: _ERROR_SCHEMA, **components},
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
    }


class _Schemas(NamedTuple):
    """Types with a schema.

    Attributes:
        named: schema by the text of a type; some refer to `components`.
        components: by name.
    """

    named: dict[str, Any]
    components: dict[str, Any]

    def of(self, kind: Any) -> Any:
        """Return the schema of a type."""
        return self.named[repr(kind)]

    def partial(self, kind: Any) -> Any:
        """Return the schema of an object of which only some fields may be asked for."""
        schema = self.of(kind)
        if "$ref" in schema:
            schema = self.components[schema["$ref"].rpartition("/")[2]]
        return {name: value for name, value in schema.items() if name != "required"}


def _types(rows: Iterable[Route]) -> list[Any]:
    """Return the types that routes take and give, each once."""
    found: dict[str, Any] = {}
    for row in rows:
        for each in (row.body, row.answer, row.failed):
            if each is not None:
                found.setdefault(repr(each), each)
    return list(found.values())


def _operation(row: Route, schemas: _Schemas) -> dict[str, Any]:
    more = PARAMETERS if row.listing else ()
    operation: dict[str, Any] = {
        "operationId": _identity(row),
        "tags": [row.heading],
        "summary": row.summary,
        "responses": {str(code): _response(row, code, schemas) for code in codes(row)},
    }
    parameters = [
        _in_path(name, row.values.get(name) or _text(rule)) for name, rule in row.names.items()
    ]
    parameters += [_parameter(each) for each in (*row.query, *more)]
    if parameters:
        operation["parameters"] = parameters
    if row.body is not None:
        content = {JSON: {"schema": schemas.of(row.body)}}
        operation["requestBody"] = {"required": _is_needed(row.body), "content": content}
    if row.role == NOBODY:
        operation["security"] = []
    else:
        operation["x-required-tag"] = row.role
        operation["description"] = f"For users with the tag `{row.role}`, or one that allows more."
    return operation


def codes(row: Route) -> list[int]:
    """Return the statuses that may be answered, in order."""
    found = {*_USUAL[row.method], *row.codes}
    if row.answer is not None:
        found.add(200)
    if row.role != NOBODY:
        found |= {401, 403, 503}
    if not row.unpaced:
        found.add(429)
    if row.failed is not None:
        found.add(503)
    if row.query or row.listing or row.body is not None or row.names:
        found.add(400)
    if row.names:
        found.add(404)
    if row.body is not None:
        found |= {408, 413}
    if row.method == "POST" and not any(code < 300 for code in found):
        found.add(204)
    return sorted(found)


def _identity(row: Route) -> str:
    words = [word.strip("{}") for word in row.template.replace("-", "_").split("/") if word]
    return "_".join((row.method.lower(), *(word for word in words if word != "api")))


def _text(rule: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "minLength": 1}
    if rule:
        schema["pattern"] = f"^{rule}$"
    return schema


def _in_path(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.text,
        "schema": parameter.schema,
    }


def _is_needed(kind: Any) -> bool:
    """Return whether a body has a field that must be there; without one it may lack as a whole."""
    return any(field.required for field in msgspec.structs.fields(kind))


def _response(row: Route, code: int, schemas: _Schemas) -> dict[str, Any]:
    response: dict[str, Any] = {"description": _MEANINGS[code]}
    if code >= 400:
        error: dict[str, Any] = {"$ref": _REF.format(name=_ERROR)}
        if code == 503 and row.failed is not None:
            error = {"anyOf": [schemas.of(row.failed), error]}
        response["content"] = {JSON: {"schema": error}}
    elif code == 200 or (code == 202 and row.answer is not None):
        response["content"] = {row.media: {"schema": _answer(row, schemas)}}
    return response


def _answer(row: Route, schemas: _Schemas) -> Any:
    if row.answer is None:
        return {}
    if row.listing:
        return _listed(schemas.partial(row.answer))
    is_chosen = any(each.name == "columns" for each in row.query)
    return schemas.partial(row.answer) if is_chosen else schemas.of(row.answer)


def _listed(schema: dict[str, Any]) -> dict[str, Any]:
    rows = {"type": "array", "items": schema}
    page = {"type": "object", "required": [*_PAGE, "items"], "properties": {**_PAGE, "items": rows}}
    return {"oneOf": [rows, page]}
