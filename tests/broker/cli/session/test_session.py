"""Commands that talk to a cluster: what they ask the API, what they print, how they end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from tests.broker.cli.fake_api import FakeApi

from headrace_broker.cli.main import main
from headrace_broker.cli.session import session as module
from headrace_broker.cli.session.api_client import ApiAnswer, ApiError

LOGIN = ("127.0.0.1:15672", "guest", "guest")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    fake = FakeApi()
    monkeypatch.setattr(module, "ApiClient", fake)
    for name in ("HEADRACE_API", "HEADRACE_API_USER", "HEADRACE_API_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    return fake


def run(*words: str, text: str | None = None) -> Result:
    return CliRunner(env={"COLUMNS": None}).invoke(main, list(words), input=text)


CHANGES: list[tuple[tuple[str, ...], str, str, Any]] = [
    (("vhost", "declare", "a/b"), "PUT", "/api/vhosts/a%2Fb",
     {"description": "", "tags": "", "default_queue_type": None}),
    (("vhost", "delete", "v", "--yes"), "DELETE", "/api/vhosts/v", None),
    (("exchange", "declare", "x", "--type", "topic", "-a", "alternate-exchange=y"), "PUT",
     "/api/exchanges/%2F/x", {"type": "topic", "durable": True, "auto_delete": False,
                              "internal": False, "arguments": {"alternate-exchange": "y"}}),
    (("exchange", "delete", "x", "--if-unused"), "DELETE", "/api/exchanges/%2F/x?if-unused=true",
     None),
    (("binding", "declare", "x", "q", "--routing-key", "a.#"), "POST",
     "/api/bindings/%2F/e/x/q/q", {"routing_key": "a.#", "arguments": {}}),
    (("binding", "declare", "x", "y", "--to-exchange", "-a", "n=3"), "POST",
     "/api/bindings/%2F/e/x/e/y", {"routing_key": "", "arguments": {"n": 3}}),
    (("queue", "--vhost", "v", "declare", "q", "--type", "classic", "-a", "x-max-length=5"), "PUT",
     "/api/queues/v/q", {"durable": True, "auto_delete": False,
                         "arguments": {"x-max-length": 5, "x-queue-type": "classic"}}),
    (("queue", "delete", "q", "--if-empty", "--vhost", "v"), "DELETE",
     "/api/queues/v/q?if-empty=true", None),
    (("queue", "purge", "q"), "DELETE", "/api/queues/%2F/q/contents", None),
    (("user", "declare", "u", "--tags", "monitoring,management", "--no-password"), "PUT",
     "/api/users/u", {"tags": ["monitoring", "management"], "password_hash": ""}),
    (("user", "delete", "u"), "DELETE", "/api/users/u", None),
    (("permission", "grant", "u", "--read", ".*"), "PUT", "/api/permissions/%2F/u",
     {"configure": "", "write": "", "read": ".*"}),
    (("permission", "revoke", "u"), "DELETE", "/api/permissions/%2F/u", None),
    (("log", "level", "debug"), "PUT", "/api/log-level", {"level": "debug"}),
    (("user", "limits", "u/v", "max-connections=5"), "PUT",
     "/api/user-limits/u%2Fv/max-connections", {"value": 5}),
    (("user", "limits", "u", "max-channels=none"), "DELETE",
     "/api/user-limits/u/max-channels", None),
    (("vhost", "--vhost", "v", "limits", "max-queues=7"), "PUT", "/api/vhost-limits/v/max-queues",
     {"value": 7}),
    (("permission", "topic", "grant", "u", "x", "--write", "^a"), "PUT",
     "/api/topic-permissions/%2F/u", {"exchange": "x", "write": "^a", "read": ""}),
    (("permission", "topic", "revoke", "u"), "DELETE", "/api/topic-permissions/%2F/u", None),
    (("permission", "topic", "revoke", "u", "x"), "DELETE", "/api/topic-permissions/%2F/u/x", None),
    (("policy", "declare", "p", "^o", "max-length=9", "overflow=reject-publish", "--priority", "3"),
     "PUT", "/api/policies/%2F/p",
     {"pattern": "^o", "definition": {"max-length": 9, "overflow": "reject-publish"},
      "priority": 3, "apply-to": "all"}),
    (("policy", "delete", "p", "--operator"), "DELETE", "/api/operator-policies/%2F/p", None),
    (("connection", "close", "a -> b"), "DELETE", "/api/connections/a%20-%3E%20b", None),
]  # fmt: skip


@pytest.mark.parametrize(("words", "method", "path", "body"), CHANGES)
def test_changes_are_requests(
    api: FakeApi, words: tuple[str, ...], method: str, path: str, body: Any
) -> None:
    api.answers.append(ApiAnswer(204, None))
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert api.asked == [LOGIN, (method, path, body)]
    assert result.output


def test_a_binding_is_deleted_by_what_it_says(api: FakeApi) -> None:
    rows = [
        {"routing_key": "k", "arguments": {"a": 1}, "properties_key": "k~1"},
        {"routing_key": "k", "arguments": {}, "properties_key": "k"},
    ]
    api.answers += [ApiAnswer(200, rows), ApiAnswer(204, None)]
    result = run("binding", "delete", "x", "q", "--routing-key", "k")
    assert result.exit_code == 0, result.output
    assert api.asked[-1] == ("DELETE", "/api/bindings/%2F/e/x/q/q/k", None)
    api.answers.append(ApiAnswer(200, rows))
    result = run("binding", "delete", "x", "q", "--routing-key", "other")
    assert result.exit_code == 3
    assert "'q' is not bound to 'x' like that" in result.output


def test_a_listing_is_a_table_for_people_and_everything_for_programs(api: FakeApi) -> None:
    rows = [
        {"name": "q[1]", "type": "quorum", "messages_ready": 3, "members": ["n1", "n2"],
         "saturated": True, "more": 1}
    ]  # fmt: skip
    api.answers += [ApiAnswer(200, rows, "no answer from n3"), ApiAnswer(200, rows)]
    result = run("queue", "list")
    heads, line = result.stdout.splitlines()
    assert heads.split() == [
        *("name", "type", "state", "ready", "unacked", "delayed", "messages"),
        *("consumers", "saturated", "leader", "members"),
    ]
    assert line.split() == ["q[1]", "quorum", "3", "yes", "n1,", "n2"]
    assert result.stderr == "Warning: the list is not complete: no answer from n3\n"
    assert msgspec.json.decode(run("queue", "list", "-o", "json").stdout) == rows


def test_a_listing_is_neither_cut_nor_padded_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    session = module.Session({})
    rows: list[dict[str, Any]] = [
        {"name": "q" * 200, "on": ["n1", "n2"]},
        {"name": "\u4e2d[b]\x1b[2J", "on": None},
    ]
    session.print_rows(rows, {"name": "name", "on": "on"})
    head, first, second = capsys.readouterr().out.splitlines()
    assert head == "name".ljust(200) + "  on"
    assert first == "q" * 200 + "  n1, n2"
    assert second == "\u4e2d[b]\\x1b[2J"
    session.print_object(rows[1], {"name": "name", "on": "on"})
    assert capsys.readouterr().out == "name  \u4e2d[b]\\x1b[2J\non\n"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ApiAnswer(400, {"reason": "name: must be short"}), 1),
        (ApiAnswer(404, {"reason": "name: must be short"}), 3),
        (ApiAnswer(403, {"reason": "name: must be short"}), 4),
        (ApiAnswer(503, {"reason": "name: must be short"}), 5),
        (ApiError("name: must be short"), 5),
    ],
)
def test_a_refusal_is_a_reason_and_an_exit_code(
    api: FakeApi, answer: ApiAnswer | ApiError, code: int
) -> None:
    api.answers.append(answer)
    result = run("queue", "purge", "q")
    assert (result.exit_code, result.output) == (code, "Error: name: must be short\n")


def test_options_behind_the_command_win_over_those_before_it_and_over_the_environment(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_API", "env:1")
    monkeypatch.setenv("HEADRACE_API_USER", "clerk")
    monkeypatch.setenv("HEADRACE_API_PASSWORD", "pw")
    api.answers += [ApiAnswer(204, None)] * 2
    run("queue", "--api", "h:1", "--vhost", "a", "purge", "q", "--api", "h:2", "--vhost", "b")
    run("queue", "purge", "q")
    assert api.asked == [
        ("h:2", "clerk", "pw"), ("DELETE", "/api/queues/b/q/contents", None),
        ("env:1", "clerk", "pw"), ("DELETE", "/api/queues/%2F/q/contents", None),
    ]  # fmt: skip


def test_a_password_that_nobody_says_is_asked_for_on_a_terminal_only(api: FakeApi) -> None:
    result = run("vhost", "list", "--user", "clerk")
    assert result.exit_code == 2
    assert "say the password of 'clerk' in HEADRACE_API_PASSWORD" in result.output
    assert api.asked == []


def test_arguments_that_are_no_pairs_are_refused(api: FakeApi) -> None:
    result = run("queue", "declare", "q", "-a", "x-max-length")
    assert result.exit_code == 2
    assert "--argument: 'x-max-length' must be KEY=VALUE" in result.output
    assert api.asked == []


def test_tags_that_are_not_given_stay(api: FakeApi) -> None:
    api.answers += [ApiAnswer(200, {"tags": ["monitoring"]}), ApiAnswer(204, None)]
    assert run("user", "declare", "u", "--no-password").exit_code == 0
    api.answers += [ApiAnswer(404, None), ApiAnswer(201, None), ApiAnswer(204, None)]
    assert run("user", "declare", "u", "--no-password").exit_code == 0
    assert run("user", "declare", "u", "--tags", "", "--no-password").exit_code == 0
    tags = [each[2]["tags"] for each in api.asked if each[0] == "PUT"]
    assert tags == [["monitoring"], [], []]


def test_a_new_users_password_comes_from_a_file_or_a_prompt(api: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("s3cret\nmore\n")
    api.answers += [ApiAnswer(404, None), ApiAnswer(201, None)] * 2
    assert run("user", "declare", "u", "--password-file", str(tmp_path / "pw")).exit_code == 0
    assert run("user", "declare", "u", text="typed\ntyped\n").exit_code == 0
    passwords = [each[2]["password"] for each in api.asked if each[0] == "PUT"]
    assert passwords == ["s3cret", "typed"]


def test_a_password_is_rotated_and_sessions_end_unless_told_otherwise(
    api: FakeApi, tmp_path: Path
) -> None:
    (tmp_path / "pw").write_text("s3cret\n")
    file = ("--password-file", str(tmp_path / "pw"))
    for options, ends, said in (
        ((), {"end_sessions": True}, "its sessions from before end"),
        (("--keep-sessions",), {}, "its sessions from before go on"),
    ):
        api.answers += [ApiAnswer(200, {"tags": ["monitoring"]}), ApiAnswer(204, None)]
        result = run("user", "rotate", "u", *file, *options)
        assert (result.exit_code, said in result.output) == (0, True)
        body = {"tags": ["monitoring"], "password": "s3cret", **ends}
        assert api.asked[-1][2] == body


def test_a_vhost_is_not_deleted_without_a_yes(api: FakeApi) -> None:
    assert run("vhost", "delete", "v", text="n\n").exit_code == 1
    assert api.asked == []


def test_alarms_are_listed_though_the_check_fails(api: FakeApi) -> None:
    alarms = [{"node": "n2", "resource": "disk", "reason": "1 GiB free"}]
    body = {"status": "failed", "reason": "There are alarms", "alarms": alarms}
    api.answers += [ApiAnswer(503, body), ApiAnswer(200, {"status": "ok"})]
    result = run("alarm", "list")
    assert result.exit_code == 0
    assert result.output.splitlines()[1].split() == ["n2", "disk", "1", "GiB", "free"]
    assert run("alarm", "list").output == "no alarms\n"


def test_definitions_go_to_a_file_for_its_owner_only_and_come_back(
    api: FakeApi, tmp_path: Path
) -> None:
    found = {"queues": [{"name": "q"}]}
    api.answers += [ApiAnswer(200, found), ApiAnswer(204, None), ApiAnswer(200, found)]
    file = tmp_path / "definitions.json"
    assert run("definitions", "export", str(file)).exit_code == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert run("definitions", "import", str(file), "--only-vhost", "--vhost", "v").exit_code == 0
    assert api.asked[-1] == ("POST", "/api/definitions/v", found)
    assert msgspec.json.decode(run("definitions", "export", "-").output) == found
    file.write_text("{")
    assert "FILE: is not JSON" in run("definitions", "import", str(file)).output


@pytest.mark.parametrize(
    ("address", "over_tls"), [("https://h:1", True), ("http://h:1", False), ("h:1", False)]
)
def test_an_https_url_asks_for_tls_everywhere(address: str, over_tls: bool) -> None:
    assert (module.Session({"HEADRACE_API": address}).tls is not None) == over_tls
