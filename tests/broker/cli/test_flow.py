"""`headrace flow`: requests to the API, output, and the live view on a terminal."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from rich.console import Console, ConsoleDimensions
from tests.broker.cli.fake_api import FakeApi

from headrace_broker.cli.flow_top import Picture, draw
from headrace_broker.cli.main import main
from headrace_broker.cli.session import session as module
from headrace_broker.cli.session.api_client import ApiAnswer, ApiError

NAME = "10.0.0.5:4711 -> 10.0.1.1:5672"
SHARES = {"last_1s": 1.0, "last_10s": 0.83, "last_60s": 0.4}
SECONDS_MAX = 60


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    fake = FakeApi()
    monkeypatch.setattr(module, "ApiClient", fake)
    monkeypatch.delenv("HEADRACE_API", raising=False)
    return fake


def run(*words: str) -> Result:
    return CliRunner(env={"COLUMNS": None}).invoke(main, ["flow", *words])


def connection(number: int = 5, state: str = "flow", limit: str = "watermark") -> dict[str, Any]:
    flow = {
        "limit": limit or None,
        "queue": "orders" if limit else None,
        "since_ms": 9,
        "stopped": SHARES if limit else dict.fromkeys(SHARES, 0.0),
        "by_limit": {limit: {**SHARES, "queue": "orders"}} if limit else {},
    }
    return {
        "id": f"n1/1/{number}",
        "name": NAME,
        "user_provided_name": "till [1]\x1b[2J",
        "node": "n1",
        "user": "app",
        "vhost": "/",
        "state": state,
        "flow": flow,
        "buffered_messages": 1,
        "buffered_bytes": 2048,
        "owed_messages": 3,
        "owed_bytes": 4 << 20,
    }


def explanation(**more: Any) -> dict[str, Any]:
    cause = {
        "account": "n3/1/9",
        "kind": "connection",
        "name": "10.0.0.9:5123 -> x",
        "node": "n3",
        "user": "batch",
        "vhost": "/",
        "queue": "orders [a]",
        "messages": 1000,
        "byte_count": 2 << 20,
        "message_rate": 3900.0,
        "byte_rate": 4e6,
        "share": 0.71,
    }
    hidden = {**cause, "account": None, "name": None, "node": None, "user": None, "share": 0.001}
    return {
        "state": "flow",
        "limit": "watermark",
        "sentence": "conn 10.0.0.5:4711 is held by queue 'orders' [b]",
        "hint": "add consumers",
        "by_limit": {"watermark": SHARES},
        "causes": [cause, hidden],
        "held": [connection()],
        "missing": ["n2"],
        **more,
    }


def test_why_prints_who_has_filled_a_queue_and_what_is_not_known(api: FakeApi) -> None:
    told = explanation()
    gone = {**told["causes"][0], "gone": True, "queued_messages": 70, "queued_bytes": 2048}
    unknown = {**told["causes"][1], "kind": "unknown", "share": 0.3, "queued_messages": 30,
               "queued_bytes": 1024}  # fmt: skip
    api.answers.append(ApiAnswer(200, {**told, "shares_of": "backlog", "causes": [gone, unknown]}))
    result = run("why", "10.0.0.5")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    for line in (
        "who has filled the queue",
        r"share  who +node  queue +in the queue +owes +brings",
        r" +71 %  10.0.0.9:5123 \(user batch\), gone  n3 +orders \[a\]  70 messages, 2 KiB +1.*",
        r" +30 %  not known +orders \[a\]  30 messages, 1 KiB",
    ):
        assert any(re.fullmatch(line, each.rstrip()) for each in lines), (line, result.output)


def test_why_prints_the_sentence_the_causes_and_the_next_step(api: FakeApi) -> None:
    api.answers.append(ApiAnswer(200, explanation()))
    result = run("why", "10.0.0.5", "--vhost", "a/b")
    assert result.exit_code == 0, result.output
    assert api.asked == [
        ("127.0.0.1:15672", "guest", "guest"),
        ("GET", "/api/flow/why?name=10.0.0.5&vhost=a%2Fb", None),
    ]
    lines = result.output.splitlines()
    assert lines[0] == "conn 10.0.0.5:4711 is held by queue 'orders' [b]"
    for line in (
        r"state    flow, limit watermark",
        r"stopped  watermark: 100 % of the last 1 s, 83 % of the last 10 s, 40 % of the last 60 s",
        r"next     add consumers",
        r"lacks    no answer from n2",
        r" +71 %  10.0.0.9:5123 \(user batch\)  n3 +orders \[a\]  1,000 messages, 2 MiB  3,900/s.*",
        r"less than 1 %  another user's connection.*",
        r"10.0.0.5:4711 till \[1\]\\x1b\[2J"
        r" +app +n1 +flow +watermark +orders +100 +83 +40 +2 KiB 4 MiB *",
    ):
        assert any(re.fullmatch(line, each.rstrip()) for each in lines), (line, result.output)


def test_why_takes_the_groups_vhost_and_prints_json(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.answers.append(ApiAnswer(200, explanation()))
    monkeypatch.setenv("HEADRACE_API_PASSWORD", "p")
    result = run("--api", "h:1", "--user", "u", "--vhost", "v", "why", "q", "-o", "json")
    assert api.asked == [("h:1", "u", "p"), ("GET", "/api/flow/why?name=q&vhost=v", None)]
    assert msgspec.json.decode(result.output) == explanation()


@pytest.mark.parametrize(("status", "code"), [(404, 3), (409, 1), (401, 4)])
def test_what_the_api_refuses_is_an_error(api: FakeApi, status: int, code: int) -> None:
    api.answers.append(ApiAnswer(status, {"reason": "'x' may be 'xa', 'xb': say more"}))
    result = run("why", "x")
    assert (result.exit_code, result.output) == (code, "Error: 'x' may be 'xa', 'xb': say more\n")


def test_a_node_that_does_not_answer_is_an_error(api: FakeApi) -> None:
    api.answers.append(ApiError("h:1: refused"))
    assert run("top", "--once").output == "Error: h:1: refused\n"


def test_top_prints_a_table_once_where_there_is_no_terminal(api: FakeApi) -> None:
    rows = [connection(), connection(6, "running", "")]
    api.answers += [ApiAnswer(200, rows, "no answer from n3"), ApiAnswer(200, rows)]
    result = run("top", "--count", "7")
    assert api.asked[-1] == ("GET", "/api/flow/connections?count=7", None)
    titles, first, second = result.stdout.splitlines()
    assert titles.split()[:4] == ["connection", "user", "node", "state"]
    assert "flow    watermark orders  100    83    40" in first
    assert "running" in second
    assert result.stderr == "Warning: the list is not complete: no answer from n3\n"
    assert msgspec.json.decode(run("top", "-o", "json").stdout) == rows


def test_advice_is_listed(api: FakeApi) -> None:
    row = {"vhost": "/", "queue": "orders", "kind": "consumers", "value": 8, "current": 2,
           "valid_until_ms": 1_700_000_000_000, "author": "pipeline", "reason": "busy [all]",
           "figures": {}, "given_ms": 0}  # fmt: skip
    api.answers += [ApiAnswer(200, [row])] * 2
    listed = run("advice").output.splitlines()[1].split("  ")
    assert [cell.strip() for cell in listed if cell.strip()] == [
        "/", "orders", "consumers", "2", "8", "2023-11-14 22:13:20Z", "pipeline", "busy [all]",
    ]  # fmt: skip
    found = run("advice", "--queue", "orders", "-o", "json").output
    assert msgspec.json.decode(found) == [row]
    paths = [path for method, path, _ in api.asked if method == "GET"]
    assert paths == ["/api/flow/advice", "/api/flow/advice?vhost=%2F&queue=orders"]


def test_limits_are_listed_shown_changed_and_reset(api: FakeApi) -> None:
    row = {"name": "queue-commands", "value": 1234, "default": 32, "unit": "batches",
           "source": "cluster", "description": "what a [channel] has"}  # fmt: skip
    api.answers += [
        ApiAnswer(200, [row]),
        ApiAnswer(200, [row]),
        ApiAnswer(200, row),
        *[ApiAnswer(204, None)] * 3,
    ]
    listed = run("limits").output.splitlines()[1].split("  ")
    assert [cell.strip() for cell in listed if cell.strip()] == [
        "queue-commands", "1,234", "batches", "cluster", "32", "what a [channel] has",
    ]  # fmt: skip
    assert msgspec.json.decode(run("limits", "-o", "json").output) == [row]
    assert run("limits", "get", "queue-commands").output == "1234\n"
    for words in (
        ["set", "queue-commands", "64"],
        ["set", "a/b", "0.5"],
        ["reset", "queue-commands"],
    ):
        result = run("limits", *words)
        assert (result.exit_code, result.output) == (0, "")
    assert [each for each in api.asked if len(each) == 3 and each[0] in ("PUT", "DELETE")] == [
        ("PUT", "/api/flow/limits/queue-commands", {"value": 64}),
        ("PUT", "/api/flow/limits/a%2Fb", {"value": 0.5}),
        ("DELETE", "/api/flow/limits/queue-commands", None),
    ]
    result = run("limits", "set", "queue-commands", "many")
    assert (result.exit_code, "'many' is no number" in result.output) == (2, True)


def drawn(picture: Picture, columns: int, lines: int) -> list[str]:
    console = Console(width=columns, height=lines, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(draw(picture, "h:1", "12:00:00", (columns, lines)))
    return capture.get().splitlines()


def test_a_screen_fits_80_columns_and_its_lines() -> None:
    rows = [{**connection(number), "user": "a-long-user-name"} for number in range(50)]
    shown = drawn(Picture(rows), 80, 24)
    assert shown[0] == "headrace flow top  h:1  12:00:00".ljust(len(shown[0]))
    assert shown[1].startswith("50 flow   q quits")
    assert len(shown) == 24
    assert all(len(line.rstrip()) <= 80 for line in shown)
    assert shown[3].startswith("10.0.0.5:471")
    assert shown[3].split()[-3:] == ["100", "83", "40"]
    assert "held" in drawn(Picture(rows), 120, 24)[2]
    assert "held" not in shown[2]
    assert drawn(Picture([], "h:1: refused"), 80, 24)[1].startswith("h:1: refused")


class PtyConsole(Console):
    """Looks at the size of its own terminal; rich looks at the process's."""

    @property  # type: ignore[misc] # nobody sets it here
    def size(self) -> ConsoleDimensions:
        found = os.get_terminal_size(self.file.fileno())
        return ConsoleDimensions(found.columns, found.lines)


class Terminal:
    """The command on a terminal of its own; its API is in this process."""

    def __init__(self, rows: list[Any]) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(80, 24)
        self.text = ""
        self.rows = rows

    def resize(self, columns: int, lines: int) -> None:
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def wait_for(self, what: str) -> str:
        """Read until something is on the screen; returns what was written since the last time."""
        while what not in self.text:
            ready, _, _ = select.select([self.master], [], [], SECONDS_MAX)
            assert ready, f"no {what!r} in {self.text!r}"
            self.text += os.read(self.master, 65536).decode()
        found, self.text = self.text, ""
        return found


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Terminal([connection()])
    with (
        os.fdopen(made.slave, "r", closefd=False) as reads,
        os.fdopen(made.slave, "w", closefd=False) as writes,
    ):
        monkeypatch.setattr(sys, "stdin", reads)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("COLUMNS", raising=False)
        monkeypatch.delenv("LINES", raising=False)
        made.console = PtyConsole(file=writes, force_terminal=True, highlight=False)  # type: ignore[attr-defined]
        yield made
    os.close(made.master)
    os.close(made.slave)


def test_the_live_view_is_drawn_anew_follows_the_window_and_ends_with_q(
    terminal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace_broker.cli import flow_top

    monkeypatch.setattr(flow_top, "REFRESH_S", 0.01)
    before = termios.tcgetattr(terminal.slave)
    failures: list[BaseException] = []

    def person(act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as failure:  # noqa: BLE001 - raised by the test
            failures.append(failure)
            os.write(terminal.master, b"q")

    def act() -> None:
        first = terminal.wait_for("watermark")
        assert "\x1b[?1049h" in first  # a screen of its own
        terminal.rows[:] = [connection(limit="account")]
        terminal.wait_for("account")
        terminal.resize(120, 30)
        signal.raise_signal(signal.SIGWINCH)
        terminal.wait_for("held")
        os.write(terminal.master, b"xq")

    acting = threading.Thread(target=person, args=(act,))
    acting.start()
    flow_top.LiveTop(lambda: Picture(list(terminal.rows)), "h:1", terminal.console).run()
    acting.join()
    assert failures == []
    terminal.wait_for("\x1b[?1049l")
    assert termios.tcgetattr(terminal.slave) == before
