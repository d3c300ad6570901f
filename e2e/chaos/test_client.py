"""Answers of a node that closes what a client is about to open."""

from __future__ import annotations

from typing import Any

import pytest
from e2e.chaos.client import ChaosClient, RefusedError
from pamqp import commands
from pamqp.heartbeat import Heartbeat


class Scripted(ChaosClient):
    """A client that receives given values."""

    def __init__(self, *values: Any) -> None:
        self._values = list(values)

    def receive(self) -> tuple[int, Any]:
        return 0, self._values.pop(0)


def test_connection_that_is_closed_instead_of_a_channel_opened_is_a_refusal() -> None:
    client = Scripted(Heartbeat(), commands.Connection.Close(320, "CONNECTION_FORCED - drained"))
    with pytest.raises(RefusedError, match="320 CONNECTION_FORCED - drained") as refused:
        client.expect(commands.Channel.OpenOk)
    assert not refused.value.channel_only


def test_other_answers_are_an_error_and_the_right_one_is_returned() -> None:
    opened = commands.Channel.OpenOk()
    client = Scripted(commands.Basic.QosOk(), opened)
    with pytest.raises(EOFError, match="QosOk instead of OpenOk"):
        client.expect(commands.Channel.OpenOk)
    assert client.expect(commands.Channel.OpenOk) is opened
