"""Properties of every command: help, completion, and its end after a failure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from tests.broker.cli.fake_api import FakeApi

from headrace_broker.cli.main import main
from headrace_broker.cli.session.api_client import ApiAnswer, ApiError
from headrace_broker.cli.session.session import ClientCommand, SessionCommand

Leaf = tuple[tuple[str, ...], click.Command]


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield (*path, name), command
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name), command


ALL = [leaf for leaf in leaves(main) if leaf[0][0] != "ctl"]  # which does as rabbitmqctl does
NAMES = [" ".join(path) for path, _ in ALL]
ELSEWHERE = ("backup", "restore")  # ask over gRPC, or look into files
ASKING = [
    leaf for leaf in ALL if isinstance(leaf[1], SessionCommand) and leaf[0][0] not in ELSEWHERE
]

# What the commands want besides their arguments, and arguments that are more than a word.
WORDS = {
    "flow limits set": ["memory-high-watermark", "0.5"],
    "policy declare": ["p", "^a", "max-length=9"],
    "queue move": ["q", "1", "--to", "r"],
    "user declare": ["u", "--tags", "", "--no-password"],
    "vhost delete": ["v", "--yes"],
}


def words_for(leaf: Leaf, directory: Path) -> list[str]:
    """Arguments with which a command does its work."""
    path, command = leaf
    if " ".join(path) in WORDS:
        return [*path, *WORDS[" ".join(path)]]
    words = [*path]
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.required:
            words.append(parameter.opts[0])
        elif not (isinstance(parameter, click.Argument) and parameter.required):
            continue
        words.append(word_for(parameter.type, directory))
    return words


def word_for(kind: click.ParamType, directory: Path) -> str:
    if isinstance(kind, click.IntRange):
        return "7"
    if isinstance(kind, click.Choice):
        return str(kind.choices[0])
    if isinstance(kind, click.File | click.Path):
        file = directory / "file.json"
        file.write_text("{}")
        return str(file)
    return "word"


@pytest.mark.parametrize(("path", "command"), ALL, ids=NAMES)
def test_it_has_help_with_a_sentence(path: tuple[str, ...], command: click.Command) -> None:
    result = CliRunner().invoke(main, [*path, "--help"])
    assert result.exit_code == 0, result.output
    assert command.help is not None
    assert command.help.split("\n\n")[0].rstrip().endswith((".", "`."))
    assert len(command.get_short_help_str(200)) > 10


@pytest.mark.parametrize("path", [path for path, _ in ALL], ids=NAMES)
def test_a_wrong_command_line_ends_with_2(path: tuple[str, ...]) -> None:
    assert CliRunner().invoke(main, [*path, "--no-such-option"]).exit_code == 2


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ApiAnswer(400, {"reason": "so it is"}), 1),
        (ApiAnswer(404, {"reason": "so it is"}), 3),
        (ApiAnswer(401, {"reason": "so it is"}), 4),
        (ApiAnswer(403, {"reason": "so it is"}), 4),
        (ApiAnswer(503, {"reason": "so it is"}), 5),
        (ApiError("so it is"), 5),
    ],
    ids=["refused", "missing", "unknown", "forbidden", "unavailable", "silent"],
)
def test_what_the_api_refuses_ends_with_a_code_and_the_reason(
    api: FakeApi, tmp_path: Path, answer: ApiAnswer | ApiError, code: int
) -> None:
    assert len(ASKING) >= 50
    for leaf in ASKING:
        name = " ".join(leaf[0])
        if name == "alarm list" and isinstance(answer, ApiAnswer) and answer.status == 503:
            continue  # that is how the check says that there are alarms
        api.answers = [answer]
        result = CliRunner().invoke(main, words_for(leaf, tmp_path))
        assert (name, result.exit_code, "so it is" in result.stderr) == (name, code, True)


def complete(*words: str) -> list[str]:
    """Return the completions that a shell offers for the last word."""
    found = ShellComplete(main, {}, "headrace", "_HEADRACE_COMPLETE")
    return sorted(each.value for each in found.get_completions(list(words[:-1]), words[-1]))


def test_commands_options_and_choices_are_completed() -> None:
    assert complete("que") == ["queue"]
    assert complete("queue", "members", "") == ["add", "list", "remove"]
    assert complete("queue", "members", "remove", "--m") == ["--move"]
    assert complete("perf", "--protocol", "") == ["amqp", "grpc"]
    assert complete("node", "forget", "--replicas", "m") == ["move"]
    assert complete("queue", "list", "-o", "") == ["json", "table"]


@pytest.mark.parametrize("path", [path for path, _ in ALL], ids=NAMES)
def test_it_is_completed(path: tuple[str, ...]) -> None:
    assert path[-1] in complete(*path)
    options = complete(*path, "--")
    assert "--help" in options
    command = ALL[[each for each, _ in ALL].index(path)][1]
    if isinstance(command, ClientCommand | SessionCommand):
        assert {"--user", "--vhost", "--output"} <= set(options)
