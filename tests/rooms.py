"""Print the rooms of the product: subpackages, what they are for, their sizes and import circles.

    python -m tests.rooms [--circles]

A room is a package and the modules directly in it. A circle is a set of modules, rooms or folders
of which each imports each other one, over others or at once; imports for type checking alone count
as well. A folder is a package with all that is below it, compared with its neighbours. It reads the
source tree, so nothing has to be installed but grimp.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import grimp

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = {
    "headrace_raftlog": "raftlog",
    "headrace_broker": "broker",
    "headrace_client": "client",
    "headrace_operator": "operator",
    "headrace_pipeline": "pipeline",
    "headrace_simulation": "simulation",
    "headrace_sparkdriver": "sparkdriver",
}


class Room(NamedTuple):
    """A package and its own modules.

    Attributes:
        name: of the package.
        purpose: the first sentence of its docstring, "" for none.
        modules: names of its modules, those of packages below it left out.
        lines: of these.
        uses: names of the rooms that it imports from.
    """

    name: str
    purpose: str
    modules: tuple[str, ...]
    lines: int
    uses: tuple[str, ...]


def build_graph() -> grimp.ImportGraph:
    """Return the graph of all imports of the product, those for type checking included."""
    sys.path[:0] = [str(ROOT / folder) for folder in PACKAGES.values()]
    return grimp.build_graph(*PACKAGES, exclude_type_checking_imports=False, cache_dir=None)


def path_of(module: str) -> Path:
    """Return the file of a module or package."""
    place = ROOT / PACKAGES[module.partition(".")[0]] / module.replace(".", "/")
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def room_of(module: str) -> str:
    """Return the package in which a module stands; a package stands in itself."""
    return module if path_of(module).name == "__init__.py" else module.rpartition(".")[0]


def find_rooms(graph: grimp.ImportGraph) -> list[Room]:
    """Return all rooms by name."""
    inside: dict[str, list[str]] = {}
    for module in sorted(graph.modules):
        inside.setdefault(room_of(module), []).append(module)
    rooms = []
    for name, modules in sorted(inside.items()):
        imported = {
            room_of(each)
            for one in modules
            for each in graph.find_modules_directly_imported_by(one)
        }
        source = path_of(name).read_text(encoding="utf-8")
        purpose = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
        own = tuple(each for each in modules if each != name)
        lines = sum(len(path_of(each).read_text(encoding="utf-8").splitlines()) for each in modules)
        rooms.append(Room(name, purpose, own, lines, tuple(sorted(imported - {name}))))
    return rooms


def circles_of(uses: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the circles of a graph, the largest first.

    Args:
        uses: by name, the names that it uses.
    """
    reached = {name: _reach(uses, name) for name in uses}
    circles = {
        tuple(sorted(other for other in found if name in reached.get(other, ())))
        for name, found in reached.items()
        if name in found
    }
    return sorted(map(list, circles), key=lambda circle: (-len(circle), circle))


def module_circles(graph: grimp.ImportGraph) -> list[list[str]]:
    """Return the circles of modules."""
    return circles_of(
        {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    )


def room_circles(rooms: Iterable[Room]) -> list[list[str]]:
    """Return the circles of rooms."""
    return circles_of({room.name: room.uses for room in rooms})


def folder_circles(graph: grimp.ImportGraph) -> list[list[str]]:
    """Return the circles of folders and modules that stand in the same package."""
    uses: dict[str, dict[str, set[str]]] = {}
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            package, one, two = _parting(module, other)
            if one and two:
                uses.setdefault(package, {}).setdefault(one, set()).add(two)
    found = [circle for package in sorted(uses) for circle in circles_of(uses[package])]
    return sorted(found, key=lambda circle: (-len(circle), circle))


def _reach(uses: Mapping[str, Iterable[str]], name: str) -> set[str]:
    """Return the names that one uses, over others or at once."""
    found: set[str] = set()
    ahead = [name]
    while ahead:
        more = set(uses.get(ahead.pop(), ())) - found
        found |= more
        ahead += more
    return found


def _parting(module: str, other: str) -> tuple[str, str, str]:
    """Return the package in which two modules part, and what of it each of them is below.

    That is "" for a module that is this package.
    """
    one, two = module.split("."), other.split(".")
    depth = 0
    while depth < min(len(one), len(two)) and one[depth] == two[depth]:
        depth += 1
    below = [".".join(each[: depth + 1]) if len(each) > depth else "" for each in (one, two)]
    return ".".join(one[:depth]), below[0], below[1]


def main() -> int:
    """Print what there is; exit code 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--circles", action="store_true", help="name what is in each circle")
    options = parser.parse_args()
    graph = build_graph()
    rooms = find_rooms(graph)
    for room in rooms:
        print(f"{room.name:48} {len(room.modules):4} modules {room.lines:6} lines  {room.purpose}")
    kinds = {
        "modules": module_circles(graph),
        "rooms": room_circles(rooms),
        "folders": folder_circles(graph),
    }
    largest = max(rooms, key=lambda room: len(room.modules))
    total: Counter[str] = Counter()
    for room in rooms:
        total[room.name.partition(".")[0]] += room.lines
    print(", ".join(f"{name}: {lines} lines" for name, lines in total.items()))
    print(f"largest folder: {largest.name}, {len(largest.modules)} modules")
    for kind, circles in kinds.items():
        print(f"circles of {kind}: {len(circles)}, {sum(map(len, circles))} {kind} in them")
        if options.circles:
            for circle in circles:
                print(f"  {kind}: {', '.join(circle)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
