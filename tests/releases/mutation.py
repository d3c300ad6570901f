"""`python -m tests.releases.mutation`: logs replayed with one limit changed, in JSON.

Reads {limit: log} from standard input and writes {limit: the state is another one}. The broker
must be the source tree's, where a limit is read and not compiled into what uses it.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Final

LIMITS: Final = "headrace_broker.model.limits"
OURS: Final = ("headrace_", "tests.")


def changes_state(limit: str, log: str) -> bool:
    """Return whether a log of the oldest recorded release gives another state with a limit."""
    for name in [each for each in sys.modules if each.startswith(OURS) and each != __name__]:
        del sys.modules[name]
    limits = importlib.import_module(LIMITS)
    setattr(limits, limit, getattr(limits, limit) - 1)
    golden = importlib.import_module("tests.releases.golden")
    record, logs = golden.load(golden.recorded()[0])
    return bool(golden.digests_of(log, logs[log]) != record.digests[log])


if __name__ == "__main__":
    wanted = json.load(sys.stdin)
    print(json.dumps({limit: changes_state(limit, log) for limit, log in wanted.items()}))
