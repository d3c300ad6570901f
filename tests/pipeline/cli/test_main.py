"""The command line: shared options, and error texts."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from pyspark.errors import AnalysisException

from headrace_client.error import ConnectFailedError
from headrace_pipeline.cli import main as module
from headrace_pipeline.cli.connection import connection_options, session_options
from headrace_pipeline.cli.main import COMMANDS, group, main
from headrace_pipeline.error import FencedError, OptionError
from headrace_pipeline.fault import exit_code, is_expected, one_line
from headrace_pipeline.options.connection import Connection, read_connection
from headrace_pipeline.options.option import Options

IN_A_WORKER = """[PYTHON_DATA_SOURCE_ERROR] Failed when Python data source instance read:
Traceback (most recent call last):
  File "source.py", line 7, in read
    raise OptionError("x", "y")
headrace_pipeline.error.OptionError: option startingOffsets: must be earliest, not 'early'

During handling of the above exception, another exception occurred:
pyspark.errors.exceptions.base.PySparkRuntimeError: [DATA_SOURCE] failed SQLSTATE: 38000
"""


class Seen:
    """Arguments that a command was given."""

    values: dict[str, object]


def command_that_notes(seen: Seen) -> click.Command:
    @click.command()
    @connection_options
    @session_options("trial")
    def trial(**values: object) -> None:
        seen.values = values

    return trial


def invoke(*arguments: str, env: dict[str, str] | None = None) -> tuple[Seen, int, str]:
    seen = Seen()
    result = CliRunner().invoke(command_that_notes(seen), arguments, env=env or {})
    return seen, result.exit_code, result.output


@pytest.mark.parametrize("words", sorted(COMMANDS))
def test_every_command_can_be_imported_and_has_help(words: str) -> None:
    result = CliRunner().invoke(group, [*words.split(), "--help"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"Usage: headrace-pipeline {words} [OPTIONS]")


def test_help_lists_commands_of_both_levels() -> None:
    listed = CliRunner().invoke(group, ["--help"]).output
    assert all(f"  {words.partition(' ')[0]} " in listed for words in COMMANDS)


def test_an_unknown_command_is_an_error_of_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["dance"])
    assert ended.value.code == 2
    assert "No such command 'dance'" in capsys.readouterr().err


def test_options_of_a_connection_come_from_flags_and_from_the_environment() -> None:
    env = {"HEADRACE_ENDPOINTS": "a:1,b:2", "HEADRACE_VHOST": "v", "HEADRACE_MASTER": "local[3]"}
    seen, code, output = invoke("--vhost", "w", "--conf", "spark.a=b", env=env)
    assert code == 0, output
    assert seen.values["connection"] == Connection("a:1,b:2", "w")
    assert seen.values["settings"] == ("trial", "local[3]", {"spark.a": "b"})


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (["--username", "u"], "--password-file"),
        (["--tls-cert-file", "c"], "--tls-key-file"),
        (["--no-tls", "--tls-ca-file", "c"], "--tls"),
        (["--endpoints", "a:b"], "--endpoints"),
    ],
)
def test_a_wrong_option_is_named_as_the_flag_that_it_is(arguments: list[str], flag: str) -> None:
    _, code, output = invoke(*arguments)
    assert code == 2
    assert f"Invalid value for {flag}: " in output


def test_sources_are_given_the_connection_of_the_command() -> None:
    secured = Connection("a:1", "v", "u", "/p", True, "/ca", "/c", "/k", "n")
    for connection in (Connection("a:1"), secured):
        assert read_connection(Options(connection.options(), "x")) == connection


def test_the_cause_in_a_worker_is_found_in_what_spark_says() -> None:
    error = AnalysisException(IN_A_WORKER)
    assert one_line(error) == "option startingOffsets: must be earliest, not 'early'"
    assert exit_code(error) == 2


def test_of_errors_of_others_the_last_is_the_cause() -> None:
    text = "[X] failed\nTraceback:\nKeyError: 'a'\n\nValueError: no such table"
    assert one_line(AnalysisException(text)) == "ValueError: no such table"
    assert one_line(AnalysisException("[PATH_NOT_FOUND] Path /x is not there.\nmore")) == (
        "[PATH_NOT_FOUND] Path /x is not there."
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OptionError("table", "must be given"), 2),
        (FencedError("another reads"), 1),
        (ConnectFailedError("no node answers"), 1),
        (FileNotFoundError(2, "No such file", "x"), 1),
    ],
)
def test_what_is_expected_is_one_line_and_a_code(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def fails() -> None:
        raise error

    made = module.make_group()
    made.add_command(fails, "fails")
    monkeypatch.setattr(module, "group", made)
    with pytest.raises(SystemExit) as ended:
        main(["fails"])
    assert ended.value.code == code
    assert capsys.readouterr().err == f"headrace-pipeline: {error}\n"
    with pytest.raises(type(error)):
        main(["--trace", "fails"])


def test_a_bug_keeps_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def fails() -> None:
        raise KeyError("x")

    made = module.make_group()
    made.add_command(fails, "fails")
    monkeypatch.setattr(module, "group", made)
    assert not is_expected(KeyError("x"))
    with pytest.raises(KeyError):
        main(["fails"])
