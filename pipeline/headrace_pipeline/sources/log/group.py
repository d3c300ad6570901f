"""A group that commits a stream's position, so that brokers may drop the rows before it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import Final

from headrace_client import error as errors
from headrace_client.blocking import Client
from headrace_client.export import Shard
from headrace_pipeline.error import FencedError
from headrace_pipeline.sources.log.offset import Position

log = logging.getLogger(__name__)

_PASSING: Final = (errors.UnavailableError, errors.TooLateError, errors.UnknownShardError)


class ReadGroup:
    """Reading group, opened at each new shard, which fences its earlier owner."""

    def __init__(self, log_name: str, name: str) -> None:
        self._log = log_name
        self._name = name  # of the group
        self._request_id = str(uuid.uuid4())  # one for the reader's life: repetitions fence nobody
        self._epochs: dict[tuple[str, int], int] = {}
        self._committed: dict[tuple[str, int], int] = {}

    def open(self, client: Client, shards: Mapping[str, Shard]) -> None:
        """Open the group where that was not done; a shard that is away is opened at another time.

        Raises:
            HeadraceError: it cannot be opened: there are too many groups, or one may not.
        """
        for name, shard in shards.items():
            if (name, shard.incarnation) in self._epochs:
                continue
            try:
                self._open(client, name)
            except _PASSING as error:
                log.warning("group %s is not open at shard %s: %s", self._name, name, error)

    def commit(self, client: Client, positions: Mapping[str, Position]) -> None:
        """Say how far batches have come that are done; what fails is said again with the next.

        Raises:
            FencedError: another query reads with this group.
        """
        for name, position in positions.items():
            key = name, position.incarnation
            if key in self._epochs and self._committed.get(key, -1) < position.next_index:
                try:
                    self._commit(client, key, position)
                except errors.FencedError as error:
                    text = f"another query reads with group {self._name!r}, and this one must stop"
                    raise FencedError(f"{text}: give each query a group of its own") from error
                except errors.HeadraceError as error:
                    log.warning("group %s: %s is not committed: %s", self._name, name, error)

    def check(self, client: Client, positions: Mapping[str, Position]) -> None:
        """Make sure, when nothing was committed for a while, that the group is this query's.

        Who opens it does so at all shards: asking one is enough, the first that answers.

        Args:
            client: of the brokers.
            positions: that batches have come to which are done.

        Raises:
            FencedError: another query reads with this group.
        """
        for name, position in positions.items():
            key = name, position.incarnation
            if self._committed.get(key) == position.next_index:
                del self._committed[key]
                self.commit(client, {name: position})
                if key in self._committed:
                    return

    def _commit(self, client: Client, key: tuple[str, int], position: Position) -> None:
        name, incarnation = key
        index = position.next_index
        for attempt in (1, 2):
            try:
                client.export.commit(
                    self._log, name, self._name, self._epochs[key], incarnation, index
                )
            except errors.UnknownGroupError:
                if attempt == 2:
                    raise
                log.warning("group %s was closed at shard %s: opened again", self._name, name)
                self._open(client, name)
            else:
                self._committed[key] = index
                return

    def _open(self, client: Client, name: str) -> None:
        group = client.export.open_group(self._log, name, self._name, self._request_id)
        self._epochs[name, group.incarnation] = group.epoch
        if group.committed > group.first_index:
            text = "group %s goes on at shard %s, where it has committed %d"
            log.info(text, self._name, name, group.committed)
