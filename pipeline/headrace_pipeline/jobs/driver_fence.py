"""One driver at a time: who starts a job anew ends the one that ran before.

Kubernetes may run two drivers for a while. Brokers tell them apart by the epoch of a group, which
each driver opens once, at a log that is small and that the job does not read. It commits to the
present end, so that nothing is kept for it.
"""

from __future__ import annotations

import logging
import uuid
from typing import Final

from headrace_client import error as errors
from headrace_client.blocking import Client
from headrace_client.export import Shard
from headrace_pipeline.error import FencedError

LOG: Final = "queue_events"

log = logging.getLogger(__name__)


class DriverFence:
    """Says whether this driver is still the one."""

    def __init__(self, client: Client, group: str) -> None:
        self._client = client  # of the brokers
        self._group = group  # of the job; one for each pair of brokers and tables
        self._request_id = str(uuid.uuid4())
        self._epochs: dict[tuple[str, int], int] = {}

    def check(self) -> None:
        """Make sure that no other driver has started since.

        The first call fences whoever was there before. A node that does not answer is passed over.

        Raises:
            FencedError: another driver has started.
            HeadraceError: no broker answers, or one may not.
        """
        for shard in self._client.export.shards(LOG).shards:
            try:
                self._check(shard)
            except errors.FencedError as error:
                text = f"another driver has taken over the job {self._group!r}, and this one stops"
                raise FencedError(text) from error
            except (errors.UnavailableError, errors.TooLateError) as error:
                log.warning("node %s cannot say whose the job is: %s", shard.name, error)

    def _check(self, shard: Shard) -> None:
        key = shard.name, shard.incarnation
        if key not in self._epochs:
            opened = self._client.export.open_group(LOG, shard.name, self._group, self._request_id)
            self._epochs[shard.name, opened.incarnation] = opened.epoch
            return
        self._client.export.commit(
            LOG, shard.name, self._group, self._epochs[key], shard.incarnation, shard.next_index
        )
