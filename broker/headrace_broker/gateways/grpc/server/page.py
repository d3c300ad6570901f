"""Pages of listings: some rows in the order of their keys, and where the next page begins."""

from __future__ import annotations

import asyncio
import base64
import binascii
import heapq
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

import msgspec
from google.protobuf.message import Message

from headrace_broker.gateways.grpc.server.errors import bad_field
from headrace_broker.model.limits import (
    GRPC_PAGE_BYTES_MAX,
    GRPC_PAGE_ROWS,
    GRPC_PAGE_ROWS_MAX,
    GRPC_PAGE_TOKEN_CHARACTERS_MAX,
    LISTING_TURN_ROWS,
)
from headrace_protos.broker.v1.topology_pb2 import PageRequest

RENDERED_AT_ONCE: Final = 100  # rows, some 5 ms, before everything else on the node has its turn

Key = tuple[str, ...]
T = TypeVar("T")
M = TypeVar("M", bound=Message)


class _Token(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Position of a page's end: the listing and its last row's key."""

    listing: str
    key: Key


_TOKENS: Final = msgspec.msgpack.Decoder(_Token)


class Pager(Generic[T]):
    """Cuts a listing into pages."""

    def __init__(self, listing: str, key: Callable[[T], Key]) -> None:
        self._listing = listing  # its name, so that the token of one is not taken for another's
        # returns what a row is sorted by, unique in the listing; as many texts for each row
        self._key = key

    async def page(
        self, request: PageRequest, rows: Iterable[T], render: Callable[[T], M]
    ) -> tuple[list[M], str]:
        """Return the rows of a page as messages, and the token of the next, "" for none.

        Args:
            request: which page.
            rows: all of the listing, in any order; may not change meanwhile.
            render: makes a message of a row.

        Raises:
            CallError: INVALID_ARGUMENT.
        """
        size = page_size(request)
        after = self._read(request.token)
        found = await self._first(rows, after, size + 1)
        messages: list[M] = []
        byte_count = 0
        for row in found[:size]:
            if len(messages) % RENDERED_AT_ONCE == RENDERED_AT_ONCE - 1:
                await asyncio.sleep(0)
            message = render(row)
            byte_count += message.ByteSize()
            if messages and byte_count > GRPC_PAGE_BYTES_MAX:
                break
            messages.append(message)
        taken = len(messages)
        token = self._write(self._key(found[taken - 1])) if taken < len(found) else ""
        return messages, token

    async def _first(self, rows: Iterable[T], after: Key, count: int) -> list[T]:
        """Return the first rows behind a key, without holding up everything else."""
        best: list[T] = []
        for at, row in enumerate(rows):
            if at % LISTING_TURN_ROWS == LISTING_TURN_ROWS - 1:
                await asyncio.sleep(0)
            if self._key(row) > after:
                best.append(row)
                if len(best) >= 2 * count + LISTING_TURN_ROWS:
                    best = heapq.nsmallest(count, best, key=self._key)
        return heapq.nsmallest(count, best, key=self._key)

    def _write(self, key: Key) -> str:
        data = msgspec.msgpack.encode(_Token(self._listing, key))
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    def _read(self, token: str) -> Key:
        if not token:
            return ()
        try:
            if len(token) > GRPC_PAGE_TOKEN_CHARACTERS_MAX:
                raise ValueError(token)
            data = base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True)
            found = _TOKENS.decode(data)
        except (ValueError, UnicodeDecodeError, binascii.Error, msgspec.DecodeError):
            raise _bad_token() from None
        if found.listing != self._listing:
            raise _bad_token()
        return found.key


def page_size(request: PageRequest) -> int:
    """Return how many rows a page may have.

    Raises:
        CallError: INVALID_ARGUMENT.
    """
    if request.size > GRPC_PAGE_ROWS_MAX:
        raise bad_field("page.size", f"must be at most {GRPC_PAGE_ROWS_MAX}, not {request.size}")
    return request.size or GRPC_PAGE_ROWS


def _bad_token() -> Any:
    return bad_field("page.token", "must be the next_token of a page of the same listing")
