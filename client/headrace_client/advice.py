"""Advice on queues: limits and numbers of consumers that a monitoring program proposes.

The broker does not follow it; it keeps it for those who do, until it lapses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headrace_client.limits import ADVICE_ITEMS_MAX
from headrace_client.message_value import read_value
from headrace_client.service_calls import ServiceCalls
from headrace_protos.broker.v1 import advice_pb2 as pb
from headrace_protos.broker.v1.advice_pb2_grpc import AdviceStub

if TYPE_CHECKING:
    from headrace_protos.broker.v1.advice_pb2_grpc import AdviceAsyncStub
else:
    AdviceAsyncStub = Any  # it exists in the types alone

CONSUMERS: Final = "consumers"
PREFETCH: Final = "prefetch"
HIGH_WATERMARK: Final = "high-watermark"
HIGH_WATERMARK_BYTES: Final = "high-watermark-bytes"

_NUMBERS: Final = {
    CONSUMERS: pb.ADVICE_KIND_CONSUMERS,
    PREFETCH: pb.ADVICE_KIND_PREFETCH,
    HIGH_WATERMARK: pb.ADVICE_KIND_HIGH_WATERMARK,
    HIGH_WATERMARK_BYTES: pb.ADVICE_KIND_HIGH_WATERMARK_OCTETS,
}
_KINDS: Final = {number: kind for kind, number in _NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class AdviceItem:
    """One piece of advice."""

    vhost: str  # of the queue
    queue: str  # that it is about
    # CONSUMERS (how many it should have), PREFETCH (deliveries that each of them should have
    # unsettled at most), HIGH_WATERMARK (messages from which confirms should be deferred), or
    # HIGH_WATERMARK_BYTES (the same in bytes)
    kind: str
    value: int  # what is advised
    current: int  # what it was when this was advised
    reason: str  # for people, 1 to 512 bytes
    valid_until_ms: int  # Unix time at which it lapses, within a day from now on
    # what it was worked out from, 16 at most; names of 1 to 32 bytes
    figures: Mapping[str, float] = field(default_factory=dict)
    author: str = ""  # who advises: the user that calls, for whom "" stands; no other is taken
    given_ms: int = 0  # Unix time; the broker sets it


class Advice(ServiceCalls[AdviceAsyncStub]):
    """Gives, tells and takes back advice; `Client.advice`. Everything raises HeadraceError.

    Giving it and taking it back needs the tag `policymaker` and a permission in the vhost.
    """

    _service = AdviceStub

    async def put(self, items: Iterable[AdviceItem]) -> None:
        """Give advice, in place of what the same user has given about the same things.

        It goes in calls of ADVICE_ITEMS_MAX, each of which is taken as a whole or not at all. Calls
        may be repeated.

        Args:
            items: any number.

        Raises:
            NotFoundError: a queue is not there; `fields` names its item within its call.
            PreconditionError: `valid_until_ms` has passed (reason ALREADY_LAPSED).
            ExhaustedError: the cluster keeps no more advice.
            ValueError: a kind, or a number, that cannot be; nothing is given then.
        """
        given = [_item(each) for each in items]
        for at in range(0, len(given), ADVICE_ITEMS_MAX):
            request = pb.PutAdviceRequest(items=given[at : at + ADVICE_ITEMS_MAX])
            await self._call(lambda stub: stub.Put, request)

    async def list(
        self, *, vhost: str = "", queue: str = "", author: str = ""
    ) -> tuple[AdviceItem, ...]:
        """Return valid advice, by vhost, queue, kind and author.

        Args:
            vhost: "" for all.
            queue: "" for all; of the client's vhost where none is given.
            author: "" for all.
        """
        where = self._vhost if queue and not vhost else vhost
        request = pb.ListAdviceRequest(vhost=where, queue=queue, author=author)
        answer = await self._call(lambda stub: stub.List, request)
        return tuple(map(_read, answer.items))

    async def delete(
        self, queue: str, *, kind: str = "", author: str = "", vhost: str | None = None
    ) -> int:
        """Take advice about a queue back.

        Args:
            queue: that it is about.
            kind: "" for all.
            author: "" for the user that calls; where that is an administrator, for all.
            vhost: None for the client's.

        Returns:
            How many pieces there were.
        """
        request = pb.DeleteAdviceRequest(
            vhost=self._where(vhost),
            queue=queue,
            kind=_number(kind) if kind else pb.ADVICE_KIND_UNSPECIFIED,
            author=author,
        )
        return int((await self._call(lambda stub: stub.Delete, request)).items)


def _number(kind: str) -> pb.AdviceKind.ValueType:
    number = _NUMBERS.get(kind)
    if number is None:
        raise ValueError(f"kind: must be one of {', '.join(_NUMBERS)}, not {kind!r}")
    return number


def _item(item: AdviceItem) -> pb.AdviceItem:
    """Return advice as a message; the broker sets `given_ms`."""
    return pb.AdviceItem(
        vhost=item.vhost,
        queue=item.queue,
        kind=_number(item.kind),
        value=item.value,
        current=item.current,
        reason=item.reason,
        figures=item.figures,
        valid_until_ms=item.valid_until_ms,
        author=item.author,
    )


def _read(item: pb.AdviceItem) -> AdviceItem:
    """Return advice; of a kind that this version does not know, its number."""
    return read_value(AdviceItem, item, kind=_KINDS.get(item.kind, str(item.kind)))
