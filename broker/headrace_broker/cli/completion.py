"""`headrace completion`: what makes a shell complete commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAM = "headrace"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what the shell's start-up file needs: `eval "$(headrace completion bash)"`."""
    found = get_completion_class(shell)
    assert found is not None  # click knows these three
    made = found(context.find_root().command, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE")
    click.echo(made.source())
