"""Objects that only cycles of references keep alive."""

from __future__ import annotations

import gc


def garbage() -> list[object]:
    """Collect objects that only cycles keep alive, and return them."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return list(gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
