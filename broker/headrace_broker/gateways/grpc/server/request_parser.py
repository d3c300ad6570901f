"""Requests are taken as bytes, and parsed within the bounds of their method.

gRPC takes bytes up to the largest message for every method, and its parser makes objects of up to
GRPC_PARSED_BYTES for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from headrace_broker.gateways.grpc.server.batch_outline import (
    BatchBoundError,
    BatchOutline,
    BrokenBatchError,
)
from headrace_broker.gateways.grpc.server.errors import CallError, bad_field
from headrace_broker.model.limits import (
    GRPC_BATCH_FIELDS_PER_MESSAGE,
    GRPC_BATCH_REST_BYTES_MAX,
    GRPC_REQUEST_BYTES_MAX,
    GRPC_UNSEEN_BYTES_MAX,
    STREAM_BATCH_MESSAGES_MAX,
)

_EOF: Final = grpc.aio.EOF  # type: ignore[attr-defined]

Parse = Callable[[bytes], Any]  # raises CallError, or DecodeError where it is nothing of its kind


class RequestParser:
    """Parses requests that are no batches."""

    def __init__(self, parse: Parse, bytes_max: int = GRPC_REQUEST_BYTES_MAX) -> None:
        self._parse = parse  # bytes of any number
        self._bytes_max = bytes_max  # of a request

    def __call__(self, data: bytes) -> Any:
        """Return the request.

        Raises:
            CallError: INVALID_ARGUMENT, it is not what it has to be; RESOURCE_EXHAUSTED, it is too
                large.
        """
        size = len(data)
        if size > self._bytes_max:
            text = f"the request has {size} bytes, at most {self._bytes_max}"
            raise CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "REQUEST_TOO_LARGE", text)
        try:
            return self._parse(data)
        except DecodeError:
            raise malformed() from None


class BatchParser:
    """Parses requests that are batches of messages, with bodies up to the largest.

    Args:
        spine: numbers of the fields that lead from a request to what holds a body.
        body: number of the field that is one.
    """

    def __init__(self, parse: Parse, spine: Sequence[int], body: int) -> None:
        self._parse = parse  # bytes of any number
        fields_max = STREAM_BATCH_MESSAGES_MAX * GRPC_BATCH_FIELDS_PER_MESSAGE
        self._outline = BatchOutline(list(spine), body, fields_max, GRPC_BATCH_REST_BYTES_MAX)

    def __call__(self, data: bytes) -> Any:
        """Return the request.

        Raises:
            CallError: INVALID_ARGUMENT, it is not what it has to be, or would be too many objects.
        """
        try:
            if len(data) > GRPC_UNSEEN_BYTES_MAX:
                self._outline.walk(data)
            return self._parse(data)
        except BatchBoundError as error:
            raise bad_field("batch", error.rule) from None
        except (BrokenBatchError, DecodeError):
            raise malformed() from None


def parsed_opening(byte_count: Any, kind: Any) -> Any:
    """Return what the first request of a stream opens it with.

    Args:
        byte_count: what was read, grpc.aio.EOF for nothing.
        kind: of requests, with `open` among others in a oneof `kind`.

    Raises:
        CallError: INVALID_ARGUMENT, it opens nothing; as `RequestParser`.
    """
    request = kind() if byte_count is _EOF else RequestParser(kind.FromString)(byte_count)
    if request.WhichOneof("kind") != "open":
        raise bad_field("open", "must be the first request")
    return request.open


def malformed() -> CallError:
    """Return the refusal of a malformed request."""
    text = "the request is not a message of its type"
    return CallError(grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST", text)
