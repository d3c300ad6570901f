"""Errors that are no faults of the operator's: they are told, and it is tried again."""

from __future__ import annotations


class ExpectedError(Exception):
    """Something outside refuses, does not answer, or is missing; the text names it."""
