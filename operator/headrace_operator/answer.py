"""Reading what an API answers, up to a bound."""

from __future__ import annotations

from typing import Final

import aiohttp

ANSWER_BYTES_MAX: Final = 64 << 20  # a listing of some ten thousand queues


async def read_answer(answer: aiohttp.ClientResponse) -> bytes:
    """Return the body of an answer.

    Raises:
        aiohttp.ClientPayloadError: it is longer than any that is expected.
    """
    found = bytearray()
    async for chunk in answer.content.iter_chunked(1 << 16):
        found += chunk
        if len(found) > ANSWER_BYTES_MAX:
            raise aiohttp.ClientPayloadError(f"more than {ANSWER_BYTES_MAX} bytes")
    return bytes(found)
