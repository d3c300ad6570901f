"""Every bound of the pipeline: one line each, with unit and reason."""

from __future__ import annotations

from typing import Final

SECRET_BYTES_MAX: Final = 4096  # of a file with a password; more is a wrong file
CLIENTS_MAX: Final = 16  # connections of a process: one for each cluster and user that a job works with, mostly one
