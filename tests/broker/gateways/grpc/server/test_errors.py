"""Refusals of the catalog as statuses of calls."""

from __future__ import annotations

import grpc
import pytest

from headrace_broker.catalog.result import UpgradePending
from headrace_broker.gateways.grpc.server.errors import from_amqp
from headrace_broker.gateways.grpc.server.lookup import done
from headrace_broker.model.reply_code import PRECONDITION_FAILED, UpgradePendingError

TEXT = "node 'n3' runs an older version: upgrade it first"


def test_what_a_node_is_too_old_for_is_worth_another_attempt() -> None:
    with pytest.raises(UpgradePendingError) as refused:
        done(UpgradePending(TEXT), "name")
    assert refused.value.code == PRECONDITION_FAILED
    error = from_amqp(refused.value)
    assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "UPGRADE_PENDING")
    assert error.text == TEXT
    assert error.retry_ms > 0
