"""Errors from outside the operator: reported in a status, and retried."""

from __future__ import annotations


class ExpectedError(Exception):
    """A refusal, a missing answer or a missing object; the text names it."""


class HttpError(ExpectedError):
    """An error answer of an HTTP API, or none.

    Attributes:
        status: of HTTP, 0 without an answer.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
