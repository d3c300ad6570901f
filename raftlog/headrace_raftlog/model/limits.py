"""Every bound of the replicated log: one line each, with unit and reason."""

from __future__ import annotations

from typing import Final

NODE_ID_MAX: Final = 1023  # ids fit 10 bits in the application's session ids
