"""`python -m conformance`: run suites, print a table, fail if anything is not as expected."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from conformance.broker import LANES_MAX, BrokerError
from conformance.distribution import DistributionError, environment
from conformance.lanes import end_when_told, judge_suites
from conformance.recipe import BROKERS, RecipeError, load_recipes
from conformance.runner import Run
from conformance.verdict import Verdict


@click.command()
@click.option("--broker", type=click.Choice(BROKERS), default="headrace", show_default=True)
@click.option("--suite", "names", multiple=True, help="only this one; may be repeated")
@click.option("--ci", is_flag=True, help="the bounded selection")
@click.option("--only", multiple=True, help="pytest arguments in place of the recipe's")
@click.option(
    "--jobs",
    type=click.IntRange(1, LANES_MAX),
    default=1,
    show_default=True,
    help="suites that run beside each other; headrace only",
)
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("build/conformance"),
    show_default=True,
    help="distributions, their environment, and results",
)
def main(
    broker: str, names: tuple[str, ...], ci: bool, only: tuple[str, ...], jobs: int, cache: Path
) -> None:
    """Run the test suites of third-party clients."""
    console = Console(soft_wrap=True)
    end_when_told()
    try:
        recipes = load_recipes()
        suites = [suite for suite in recipes.suite if not names or suite.name in names]
        if len(suites) < len(names):
            raise click.UsageError(f"suites: {', '.join(suite.name for suite in recipes.suite)}")
        cache = cache.absolute()
        run = Run(broker, cache, environment(recipes, cache), ci, only)
        if broker != "headrace" and jobs > 1:
            raise click.UsageError(f"{broker} runs one suite at a time")
        verdicts: dict[str, Verdict] = {}
        for suite, found in judge_suites(suites, run, jobs):
            console.print(f"{suite.requirement} against {broker}: {found.first.seconds:.0f} s")
            tell(console, found.first)
            if found.again is not None:
                console.print("and again, with a fresh broker:")
                tell(console, found.again)
            verdicts[suite.name] = found.last
    except (BrokerError, DistributionError, RecipeError) as error:
        console.print(f"conformance: {error}", markup=False, style="red")
        sys.exit(2)
    console.print(summary({suite.name: verdicts[suite.name] for suite in suites}))
    sys.exit(0 if all(verdict.good for verdict in verdicts.values()) else 1)


def tell(console: Console, verdict: Verdict) -> None:
    """Print unexpected results."""
    for outcome in verdict.failed:
        console.print(f"FAILED {outcome.test}", markup=False, style="red")
        console.print(outcome.detail, markup=False, highlight=False)
    for text in (*verdict.surprising, verdict.problem):
        if text:
            console.print(text, markup=False, style="red")


def summary(verdicts: dict[str, Verdict]) -> Table:
    """Return the table at the end."""
    heads = ("suite", "passed", "expected failures", "failed", "skipped", "seconds", "")
    table = Table(*heads)
    for name, verdict in verdicts.items():
        counts = (verdict.passed, len(verdict.expected), len(verdict.failed), verdict.skipped)
        end = "ok" if verdict.good else "NOT OK"
        table.add_row(name, *map(str, counts), f"{verdict.seconds:.0f}", end)
    return table


if __name__ == "__main__":
    main()
