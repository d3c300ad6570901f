"""A small pseudo-random generator that gives the same numbers compiled and interpreted."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

MASK_32: Final = 0xFFFFFFFF
SCRAMBLE: Final = 0x45D9F3B  # odd and below 2**27: its product with 32 bits fits 63 bits


@final
class Prng:
    """xorshift32: enough to spread election timeouts, and free of the host's randomness.

    Args:
        seed: any integer; near seeds give unrelated sequences.

    Source: Marsaglia, Xorshift RNGs, Journal of Statistical Software 8(14), 2003.
    """

    def __init__(self, seed: i64) -> None:
        state: i64 = (seed ^ (seed >> 32)) & MASK_32
        state = ((state ^ (state >> 16)) * SCRAMBLE) & MASK_32
        state = ((state ^ (state >> 16)) * SCRAMBLE) & MASK_32
        self.state: i64 = (state ^ (state >> 16)) or 1

    def below(self, bound: i64) -> i64:
        """Return a number in [0, bound); `bound` is at least 1."""
        x: i64 = self.state
        x ^= (x << 13) & MASK_32
        x ^= x >> 17
        x ^= (x << 5) & MASK_32
        self.state = x
        return x % bound
