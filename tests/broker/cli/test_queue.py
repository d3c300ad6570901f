"""`headrace queue`: requests to the API, and output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.broker.cli.fake_api import FakeApi

from headrace_broker.cli.main import main
from headrace_broker.cli.session import session as module
from headrace_broker.cli.session.api_client import ApiAnswer, ApiError


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    fake = FakeApi()
    monkeypatch.setattr(module, "ApiClient", fake)
    return fake


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["queue", *words], env={"COLUMNS": "160"})


def message(number: int, payload: str, **more: Any) -> dict[str, Any]:
    return {
        "id": number,
        "age_ms": 1500,
        "priority": 0,
        "acquired_count": 2,
        "payload_bytes": len(payload),
        "payload": payload,
        "payload_encoding": "string",
        "routing_key": "[work]",
        **more,
    }


def test_peek_shows_messages_and_where_to_go_on(api: FakeApi) -> None:
    page = [
        message(3, "[hello]\n"),
        message(4, "x" * 99),
        message(5, "/w==", payload_encoding="base64"),
    ]
    api.answers.append(ApiAnswer(200, {"messages": page, "next_after": 5}))
    result = run("--vhost", "a/b", "peek", "my queue", "--after", "2", "--limit", "3")
    assert result.exit_code == 0, result.output
    assert api.asked == [
        ("127.0.0.1:15672", "guest", "guest"),
        ("GET", "/api/queues/a%2Fb/my%20queue/messages?after=2&limit=3", None),
    ]
    for part in ("[hello].", "x" * 60 + "...", "base64 /w==", "1.5 s", "[work]"):
        assert part in result.output
    assert "more: --after 5" in result.output


def test_archive_is_shown_with_its_readers(api: FakeApi) -> None:
    group = {"name": "[lake]", "epoch": 3, "committed": 14, "committed_ms": 9, "lag": 6}
    answer = {"queue": "q", "archive": "full", "messages": 8, "groups": [group]}
    api.answers += [ApiAnswer(200, dict(answer)), ApiAnswer(200, dict(answer))]
    result = run("archive", "q")
    assert result.exit_code == 0, result.output
    assert api.asked[1] == ("GET", "/api/queues/%2F/q/archive", None)
    for part in ("archive   full", "messages  8", "[lake]  14         6    3"):
        assert part in result.output
    shown = run("archive", "q", "-o", "json")
    assert json.loads(shown.output) == answer


def test_messages_are_deleted_one_by_one_until_one_is_not_there(api: FakeApi) -> None:
    api.answers += [ApiAnswer(204, None), ApiAnswer(404, {"reason": "no message 8"})]
    result = run("delete-message", "q", "7", "8", "9")
    assert result.exit_code == 3
    assert "no message 8" in result.output
    assert [each[:2] for each in api.asked[1:]] == [
        ("DELETE", "/api/queues/%2F/q/messages/7"),
        ("DELETE", "/api/queues/%2F/q/messages/8"),
    ]
    api.answers += [ApiAnswer(204, None)]
    assert run("delete-message", "q", "7").output == "removed 1\n"


def test_move_says_what_moved_and_what_did_not(api: FakeApi) -> None:
    moved = {"moved": [1], "missing": [2, 3], "unrouted": [], "refused": [4]}
    api.answers.append(ApiAnswer(200, moved))
    result = run("move", "q", "1", "2", "3", "4", "--to", "r")
    assert result.exit_code == 1
    assert "moved 1\n" in result.output
    assert "not moved: missing: 2, 3; refused: 4" in result.output
    body = {"ids": [1, 2, 3, 4], "queue": "r"}
    assert api.asked[-1] == ("POST", "/api/queues/%2F/q/messages/move", body)
    api.answers.append(ApiAnswer(200, {"moved": [1], "missing": [], "unrouted": [], "refused": []}))
    result = run("move", "q", "1", "--exchange", "e", "--routing-key", "k")
    assert (result.exit_code, result.output) == (0, "moved 1\n")
    assert api.asked[-1][2] == {"ids": [1], "exchange": "e", "routing_key": "k"}


@pytest.mark.parametrize("words", [[], ["--to", "r", "--exchange", "e"]])
def test_move_goes_to_one_place(api: FakeApi, words: list[str]) -> None:
    result = run("move", "q", "1", *words)
    assert result.exit_code == 2
    assert "either --to or --exchange" in result.output


def test_a_node_that_does_not_answer_is_an_error(api: FakeApi) -> None:
    api.answers.append(ApiError("127.0.0.1:15672: refused"))
    result = run("peek", "q")
    assert result.exit_code == 5
    assert "127.0.0.1:15672: refused" in result.output
