"""A start of which the cluster knows more than the node's data directory."""

from __future__ import annotations

import asyncio

import pytest

from headrace_broker.catalog.request import Request
from headrace_broker.catalog.result import Ok, Result
from headrace_broker.runtime.cluster.boot_claim import BootClaim


class Raft:
    """Counts starts, from 1."""

    boot = 1

    async def raise_boot(self, boot: int) -> None:
        self.boot = boot


def test_start_that_goes_on_as_a_later_boot_names_both_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    raft = Raft()

    async def ask(number: int, command: bytes) -> Result:
        del command
        if raft.boot > 3:  # the cluster has met boots 1 to 3
            claim.first_of_boot = Request(3, raft.boot, number)
        return Ok()

    claim = BootClaim(raft, 3, lambda node: 3, ask)
    asyncio.run(claim.wait())
    assert raft.boot == 4
    assert caplog.messages == [
        "by its data directory this start of node 3 is boot 1, but the cluster has met starts of "
        "it up to boot 3 (the directory was lost, or is a copy): it goes on as boot 4"
    ]
