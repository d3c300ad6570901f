"""TLS options of commands, and errors in their files."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.broker.cli.fake_api import FakeApi

from headrace_broker.cli.main import main
from headrace_broker.cli.rabbitmqctl.command import from_environment
from headrace_broker.cli.session.api_client import ApiAnswer
from headrace_broker.cli.session.client_tls import ClientTls, tls_of
from headrace_broker.cli.session.session import Session

FILES = {
    "HEADRACE_API_CA_FILE": "ca.pem",
    "HEADRACE_API_CERT_FILE": "me.pem",
    "HEADRACE_API_KEY_FILE": "me.key",
}
ALL = ClientTls("ca.pem", "me.pem", "me.key")


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, (False, ClientTls())),
        ({"HEADRACE_API_TLS": "0"}, (False, ClientTls())),
        ({"HEADRACE_API_TLS": "1"}, (True, ClientTls())),
        ({"HEADRACE_API_TLS": "True"}, (True, ClientTls())),
        ({"HEADRACE_API_CA_FILE": "ca.pem"}, (True, ClientTls("ca.pem"))),
        (FILES, (True, ALL)),
        ({**FILES, "HEADRACE_API_TLS": "no"}, (False, ALL)),
    ],
)
def test_the_environment_asks_for_tls(
    environment: dict[str, str], found: tuple[bool, ClientTls]
) -> None:
    assert tls_of(environment) == found
    assert Session(environment).tls == (found[1] if found[0] else None)
    assert from_environment(environment).tls == (found[1] if found[0] else None)


def test_a_word_that_is_neither_on_nor_off_is_refused() -> None:
    with pytest.raises(click.UsageError, match="HEADRACE_API_TLS: 'maybe' must be 1 or 0"):
        tls_of({"HEADRACE_API_TLS": "maybe"})


@pytest.mark.parametrize(
    ("words", "with_tls"), [((), False), (("--tls",), True), (("--no-tls",), False)]
)
def test_options_ask_for_tls(api: FakeApi, words: tuple[str, ...], with_tls: bool) -> None:
    api.answers = [ApiAnswer(200, [])]
    done = CliRunner().invoke(main, ["queue", "list", *words])
    assert done.exit_code == 0, done.output
    assert (api.tls is not None) == with_tls


def test_a_file_asks_for_tls_and_one_that_cannot_be_used_is_named(
    api: FakeApi, tmp_path: Path
) -> None:
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    for words in (("--ca-file", "missing.pem"), ("--ca-file", str(text))):
        done = CliRunner().invoke(main, ["queue", "list", *words])
        assert done.exit_code == 2
        assert f"files for TLS ({words[1]})" in done.output
    done = CliRunner().invoke(main, ["queue", "list", "--key-file", "me.key"])
    assert done.exit_code == 2
    assert "needs a --cert-file" in done.output
