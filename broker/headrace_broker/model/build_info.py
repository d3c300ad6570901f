"""Which version this is, and whether its hot path is compiled.

There are two, and each has its names wherever one is told. `VERSION` is Headrace's own:
`headrace_version`, and `product_version` beside the product's name. `RABBITMQ_VERSION` is what
clients compare with the RabbitMQ that they need: `rabbitmq_version` and `management_version` in the
HTTP API and in definitions, and `version` among the server's properties in AMQP.
"""

from __future__ import annotations

import importlib.util
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Final

VERSION: Final = "0.1.0"
RABBITMQ_VERSION: Final = "4.1.0"  # whose APIs these are

# One module of each compiled part; hatch_build.py compiles all of them or none.
HOT_MODULES: Final = ("headrace_raftlog.model.entry", "headrace_broker.model.message")


def compiled() -> bool:
    """Return whether the hot modules that an import would find are extension modules."""
    return all(_is_extension(name) for name in HOT_MODULES)


def _is_extension(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    origin = spec.origin if spec is not None else None
    return origin is not None and origin.endswith(tuple(EXTENSION_SUFFIXES))
