"""Long work on a terminal, and where there is none."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator

import click
import pytest

from headrace_broker.cli.session import progress
from headrace_broker.cli.session.progress import Gauge, gauge, poll


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def streams(error: io.StringIO, output: io.StringIO) -> Iterator[None]:
    """Redirect the output of the context to these streams."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stderr", error)
        patch.setattr("sys.stdout", output)
        patch.setenv("TERM", "xterm")
        yield


def test_a_bar_shows_what_goes_on_and_how_far_it_is() -> None:
    terminal = Terminal()
    with streams(terminal, io.StringIO()), gauge("the [first] text", quiet=False) as shown:
        shown.reach(1, 4)
        shown.show("the [second] text")
        assert (shown.done, shown.total) == (1, 4)
    assert "the [second] text" in terminal.getvalue()


def test_what_a_command_prints_goes_where_it_was_to_go() -> None:
    terminal, file = Terminal(), io.StringIO()
    with streams(terminal, file), gauge("work", quiet=False):
        click.echo("a line")
    assert (file.getvalue(), "a line" in terminal.getvalue()) == ("a line\n", False)


def test_on_a_terminal_it_passes_above_the_bar() -> None:
    error, output = Terminal(), Terminal()
    with streams(error, output), gauge("work", quiet=False):
        click.echo("a line")
    assert (output.getvalue(), "a line" in error.getvalue()) == ("", True)


@pytest.mark.parametrize(("quiet", "error"), [(True, Terminal()), (False, io.StringIO())])
def test_nothing_is_shown_to_programs(quiet: bool, error: io.StringIO) -> None:
    with streams(error, io.StringIO()), gauge("work", quiet) as shown:
        shown.reach(1, 2)
        shown.show("more")
    assert error.getvalue() == ""


def test_what_remains_is_of_the_most_that_ever_was() -> None:
    shown = Gauge("")
    seen = []
    for left in (4, 6, 3, 0):
        shown.remain(left)
        seen.append((shown.done, shown.total))
    assert seen == [(0, 4), (0, 6), (3, 6), (6, 6)]


def test_it_is_looked_at_once_whatever_time_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "POLL_S", 0)
    answers = iter([False, False, True])
    assert poll(lambda: next(answers), 60)
    assert not poll(lambda: False, 0)
    assert poll(lambda: True, 0)
