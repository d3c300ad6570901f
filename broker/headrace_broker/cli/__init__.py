"""The command `headrace`."""

from __future__ import annotations

import os

# gRPC reads it as it is imported. Its lines are not in the log's format, and what fails is raised.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
