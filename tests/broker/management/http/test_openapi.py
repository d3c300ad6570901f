"""The description of the API follows the registered routes, and is right."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from aiohttp.web import AbstractResource

from headrace_broker.management.http.openapi import codes, document
from headrace_broker.management.server import ManagementServer


@pytest.fixture
def server(node):
    return ManagementServer(node, node)


def of_page(resource: AbstractResource) -> bool:
    """Return whether a path belongs to the web page and not to the API."""
    return resource.canonical == "/" or resource.canonical.startswith("/page/")


def _named(match: re.Match[str]) -> str:
    """A name in a path without its expression; a slash at the end counts for nothing."""
    return f"{{{match[1]}}}" if match[1] else ""


def test_every_path_that_is_served_is_described_and_no_other(api, server):
    _, found = api("GET", "/api/openapi.json")
    described = {(method.upper(), path) for path, each in found["paths"].items() for method in each}
    served = {
        (route.method, re.sub(r"\{(\w+):[^{}]*\}|/$", _named, route.resource.canonical))
        for route in server.application().router.routes()
        if route.method != "HEAD" and route.resource is not None and not of_page(route.resource)
    }
    assert described == served


def test_every_route_has_a_sentence(server):
    for row in server.routes():
        assert re.fullmatch(r"[A-Z].*\.", row.summary), f"{row.method} {row.path}: {row.summary!r}"


def test_operations_have_names_of_their_own(server):
    operations = [
        operation
        for each in document(server.routes())["paths"].values()
        for operation in each.values()
    ]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))


def test_names_in_paths_are_parameters(server):
    for path, each in document(server.routes())["paths"].items():
        for operation in each.values():
            known = [p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"]
            assert known == re.findall(r"\{(\w+)\}", path)


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        found = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return found.union(*map(references, value.values()))
    if isinstance(value, list):
        return set().union(*map(references, value))
    return set()


def test_schemas_that_are_referred_to_are_there(server):
    found = document(server.routes())
    for reference in references(found):
        _, _, kind, name = reference.split("/")
        assert name in found["components"][kind]
    assert json.loads(json.dumps(found)) == found


def test_of_what_is_listed_each_field_may_lack_for_columns_choose(server):
    found = document(server.routes())
    listed, one = (found["paths"][path]["get"] for path in ("/api/bindings", "/api/whoami"))
    rows, page = listed["responses"]["200"]["content"]["application/json"]["schema"]["oneOf"]
    assert rows["items"]["properties"].keys() >= {"source", "routing_key"}
    assert "required" not in rows["items"]
    assert page["properties"]["items"] == rows
    reference = one["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
    assert found["components"]["schemas"][reference.rpartition("/")[2]]["required"]


def test_a_body_without_fields_that_must_be_there_may_lack(server):
    paths = document(server.routes())["paths"]
    assert not paths["/api/vhosts/{vhost}"]["put"]["requestBody"]["required"]
    assert paths["/api/exchanges/{vhost}/{exchange}"]["put"]["requestBody"]["required"]


def test_each_operation_has_a_good_answer(server):
    for row in server.routes():
        assert any(code < 300 for code in codes(row)), row.path
