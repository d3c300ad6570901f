"""`python -m tests.releases VERSION`: record logs, digests and constants of a new release.

Run by the release's own code, in the commit that releases.toml names.
"""

from __future__ import annotations

import sys

from tests.releases.golden import record

if __name__ == "__main__":
    print(record(sys.argv[1]))
