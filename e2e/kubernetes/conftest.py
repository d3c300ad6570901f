"""The run that all steps of the scenario share, and the diagnosis of a failed step."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest
from e2e.kubernetes.scenario import Scenario
from e2e.kubernetes.settings import add_options, has_cluster, read_settings


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a run."""
    add_options(parser)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a cluster let one step state the requirements, and not all of them."""
    steps = [each for each in items if "scenario" in getattr(each, "fixturenames", ())]
    if steps and not has_cluster():
        rest = steps[1:]
        config.hook.pytest_deselected(items=rest)
        items[:] = [each for each in items if each not in rest]


@pytest.fixture(scope="session")
def scenario(request: pytest.FixtureRequest) -> Iterator[Scenario]:
    """A run in a namespace of its own, which is removed at its end."""
    settings = read_settings(request.config)
    found = Scenario(settings)
    try:
        found.begin()
        yield found
    finally:
        if settings.keep:
            print(f"\nkept: namespace {found.kubernetes.namespace}", flush=True)
        else:
            found.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show how it stands in the cluster when a step fails; those after it would fail, too."""
    report = yield
    if report.failed and "scenario" in getattr(item, "fixturenames", ()):
        arguments: dict[str, Any] = getattr(item, "funcargs", {})
        found = arguments.get("scenario")
        if isinstance(found, Scenario) and report.when == "call":
            report.sections.append(("the cluster", found.description()))
        item.session.shouldfail = f"{item.name} failed, and the steps after it stand on it"
    return report
