"""Suites as data, read from suites.toml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

RECIPES: Final = Path(__file__).with_name("suites.toml")
BROKERS: Final = ("headrace", "rabbitmq")

Text = Annotated[str, Meta(min_length=1)]


class RecipeError(Exception):
    """suites.toml is wrong; the text says where."""


class Deselection(Struct, frozen=True, forbid_unknown_fields=True):
    """Tests that are not run.

    Attributes:
        tests: node ids, or their beginnings as pytest's --deselect takes them.
        reason: why running them would say nothing about the broker.
        brokers: where they are not run.
    """

    tests: tuple[Text, ...]
    reason: Text
    brokers: tuple[Text, ...] = BROKERS


class ExpectedFailure(Struct, frozen=True, forbid_unknown_fields=True):
    """Tests that must fail: one that passes makes the run fail.

    Attributes:
        tests: node ids; without [parameters], or with a class only, all those below are meant.
        reason: what the broker does otherwise, and why.
        brokers: where they fail.
    """

    tests: tuple[Text, ...]
    reason: Text
    brokers: tuple[Text, ...] = BROKERS


class Suite(Struct, frozen=True, forbid_unknown_fields=True):
    """The tests of one client.

    Attributes:
        name: of the suite, for the command line.
        version: of the distribution of that name on PyPI; empty for a suite of our own.
        folder: of a suite of our own, beside this module.
        runner: what runs the tests; node runs test files of its own kind.
        tests: arguments of the runner: which files.
        ci: pytest arguments of the bounded selection.
        arguments: further pytest arguments.
        environment: variables; {host}, {port} and their kin are filled in.
        tls: certificates that the suite brings, below its folder: authority, server and its key;
            the runner makes its own if there are none.
        files: certificates that the suite looks for: where, below its folder, and which of those
            that the runner made.
        containers: the suite starts its brokers itself, as containers.
        seconds: for one test, at most.
        deselected: not run.
        expected: must fail.
    """

    name: Text
    tests: tuple[Text, ...]
    ci: tuple[Text, ...]
    version: str = ""
    folder: str = ""
    runner: Literal["pytest", "node"] = "pytest"
    arguments: tuple[Text, ...] = ()
    environment: dict[str, str] = {}
    tls: tuple[Text, ...] = ()
    files: dict[str, str] = {}
    containers: bool = False
    seconds: int = 60
    deselected: tuple[Deselection, ...] = ()
    expected: tuple[ExpectedFailure, ...] = ()

    @property
    def requirement(self) -> str:
        """The distribution as pip takes it; the name only for a suite of our own."""
        return f"{self.name}=={self.version}" if self.version else self.name

    def expected_for(self, broker: str) -> list[tuple[str, str]]:
        """Return (node id, reason) of all that must fail on a broker."""
        return [
            (test, each.reason)
            for each in self.expected
            if broker in each.brokers
            for test in each.tests
        ]


class Recipes(Struct, frozen=True, forbid_unknown_fields=True):
    """All of suites.toml.

    Attributes:
        requirements: what the suites need beside the clients themselves, pinned.
        suite: in the order in which they run.
    """

    requirements: tuple[Text, ...]
    suite: tuple[Suite, ...]


def load_recipes(path: Path = RECIPES) -> Recipes:
    """Read the suites.

    Raises:
        RecipeError: the file is not as described here.
    """
    try:
        recipes = msgspec.toml.decode(path.read_bytes(), type=Recipes)
    except (OSError, msgspec.DecodeError) as error:
        raise RecipeError(f"{path}: {error}") from error
    for suite in recipes.suite:
        limited: list[ExpectedFailure | Deselection] = [*suite.expected, *suite.deselected]
        for each in limited:
            unknown = set(each.brokers) - set(BROKERS)
            if unknown:
                raise RecipeError(f"{path}: {suite.name}: unknown brokers {sorted(unknown)}")
    return recipes
