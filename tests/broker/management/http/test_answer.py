"""Words of the API for what the catalog and the broker refuse."""

from __future__ import annotations

import pytest

from headrace_broker.catalog.result import UpgradePending
from headrace_broker.management.http.answer import ApiError, amqp_refusal, check
from headrace_broker.model.reply_code import UpgradePendingError

TEXT = "node 'n3' runs an older version: upgrade it first"


def test_what_a_node_is_too_old_for_is_a_conflict() -> None:
    with pytest.raises(ApiError) as refused:
        check(UpgradePending(TEXT))
    for error in (refused.value, amqp_refusal(UpgradePendingError(TEXT))):
        assert (error.status, error.error, error.reason) == (409, "upgrade_pending", TEXT)
