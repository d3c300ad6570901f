"""Rooms of the product: no import circles, no folder too large, a purpose for each."""

from __future__ import annotations

import re
from typing import Final

import pytest
from tests import rooms
from tests.rooms import Room

MAPS: Final = {"headrace_broker": "broker", "headrace_raftlog": "raftlog"}  # folder of INTERNALS.md
MODULES_MAX: Final = 40  # of one folder
PURPOSE_CHARS_MIN: Final = 15  # of a sentence that says something


@pytest.fixture(scope="module")
def graph():
    return rooms.build_graph()


@pytest.fixture(scope="module")
def found(graph) -> list[Room]:
    return rooms.find_rooms(graph)


def test_a_circle_is_found_over_others_and_once() -> None:
    uses = {"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": [], "e": ["a"], "f": ["g"], "g": ["f"]}
    assert rooms.circles_of(uses) == [["a", "b", "c"], ["f", "g"]]


def test_the_graph_has_imports_for_type_checking_and_all_seven_packages(graph) -> None:
    assert graph.direct_import_exists(
        importer="headrace_broker.runtime.broker_port",
        imported="headrace_broker.runtime.security.authenticator",
    )
    assert {module.partition(".")[0] for module in graph.modules} == set(rooms.PACKAGES)


def test_no_modules_import_each_other(graph) -> None:
    assert rooms.module_circles(graph) == []


def test_no_rooms_import_each_other(found: list[Room]) -> None:
    assert rooms.room_circles(found) == []


def test_no_folders_import_each_other(graph) -> None:
    assert rooms.folder_circles(graph) == []


def test_no_folder_has_too_many_modules(found: list[Room]) -> None:
    large = {room.name: len(room.modules) for room in found if len(room.modules) > MODULES_MAX}
    assert large == {}


def test_each_room_says_its_purpose_in_a_sentence(found: list[Room]) -> None:
    silent = [
        room.name
        for room in found
        if not room.purpose.endswith(".") or len(room.purpose) < PURPOSE_CHARS_MIN
    ]
    assert silent == []


def paths_in(text: str) -> set[str]:
    """Return the folders in the first column of tables; braces are expanded."""
    found = set()
    for name in re.findall(r"^\| `([a-z0-9_/{},]+)/` \|", text, re.MULTILINE):
        before, brace, rest = name.partition("{")
        inside, _, after = rest.partition("}")
        found |= {before + each + after for each in inside.split(",")} if brace else {name}
    return found


@pytest.mark.parametrize("package", MAPS)
def test_each_room_stands_in_the_map_and_nothing_else(found: list[Room], package: str) -> None:
    text = (rooms.ROOT / MAPS[package] / "INTERNALS.md").read_text(encoding="utf-8")
    there = {
        room.name.removeprefix(f"{package}.").replace(".", "/")
        for room in found
        if room.modules and room.name.startswith(f"{package}.")
    }
    assert paths_in(text) == there
