"""`headrace-pipeline`: commands are imported when they are called, for Spark takes a second."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any, Final

import click

import headrace_pipeline

# Words of a command -> where it is. What goes wrong a command raises.
COMMANDS: Final[dict[str, str]] = {
    "compact": "headrace_pipeline.cli.compact:compact",
    "doctor": "headrace_pipeline.cli.doctor:doctor",
    "replay": "headrace_pipeline.cli.replay:replay",
    "report": "headrace_pipeline.cli.report:report",
    "run archive": "headrace_pipeline.cli.archive:archive",
    "run flow": "headrace_pipeline.cli.flow:flow",
    "spec": "headrace_pipeline.cli.spec:spec",
}

GROUPS: Final = {"run": "Run a job that goes on until it is stopped."}

_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "show_default": True}


class LazyGroup(click.Group):
    """A group whose commands are modules that are imported when called.

    Args:
        places: word of a command -> MODULE:NAME.
        more: as click's.
    """

    def __init__(self, places: Mapping[str, str], **more: Any) -> None:
        super().__init__(**more)
        self._places = dict(places)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all words."""
        return sorted([*super().list_commands(ctx), *self._places])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None where there is no such."""
        place = self._places.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        module, _, name = place.partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command), place
        return command


def make_group() -> click.Group:
    """Return the group of all commands."""
    plain = {words: place for words, place in COMMANDS.items() if " " not in words}
    group = LazyGroup(
        plain,
        name="headrace-pipeline",
        context_settings=_SETTINGS,
        help="Archives, flow telemetry and advice of the message broker Headrace, on Spark.",
        params=[click.Option(["--trace"], is_flag=True, help="show where an error was raised")],
    )
    for word, text in GROUPS.items():
        below = {
            words.removeprefix(f"{word} "): place
            for words, place in COMMANDS.items()
            if words.startswith(f"{word} ")
        }
        group.add_command(LazyGroup(below, name=word, help=text))
    return click.version_option(headrace_pipeline.__version__, prog_name="headrace-pipeline")(group)


group: Final = make_group()


def main(arguments: list[str] | None = None) -> None:
    """Run a command; what goes wrong is one line on standard error, unless --trace is given.

    Exits with 0, with 1 where the command failed, with 2 where an option is wrong, and with 130
    after Ctrl-C.
    """
    given = sys.argv[1:] if arguments is None else arguments
    try:
        code = group.main(given, prog_name="headrace-pipeline", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - nobody is above; bugs are raised again
        sys.exit(_told(error, "--trace" in given))
    sys.exit(code if isinstance(code, int) else 0)


def _told(error: Exception, trace: bool) -> int:
    """Say what went wrong and return the exit code; a bug is raised again."""
    from headrace_pipeline.fault import exit_code, is_expected, one_line

    if trace or not is_expected(error):
        raise error
    click.echo(f"headrace-pipeline: {one_line(error)}", err=True)
    return exit_code(error)


if __name__ == "__main__":
    main()
