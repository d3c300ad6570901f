"""Errors of the pipeline; their texts name the next step."""

from __future__ import annotations


class PipelineError(Exception):
    """Error that is shown to a user without a trace."""


class OptionError(PipelineError, ValueError):
    """An option is missing, unknown, or invalid."""

    def __init__(self, name: str, rule: str) -> None:
        super().__init__(name, rule)  # both, so that it can be pickled
        self.name = name  # of the option, as the user writes it
        self.rule = rule  # what it must be, and what it is

    def __str__(self) -> str:
        return f"option {self.name}: {self.rule}"


class DataLossError(PipelineError):
    """Rows that were to be read are gone."""


class FencedError(PipelineError):
    """Another query reads with the same group, and this one must stop."""


class SchemaError(PipelineError):
    """Rows have not the columns or types that were declared."""


class RowsRefusedError(PipelineError):
    """Rows were not published, for the broker has refused them or they can be no messages."""

    def __init__(self, count: int, named: list[str]) -> None:
        super().__init__(count, named)
        self.count = count  # how many, of one task
        self.named = named  # the first of them, with the reasons

    def __str__(self) -> str:
        left = self.count - len(self.named)
        more = f"; and {left} more" if left else ""
        return f"{self.count} rows were refused: {'; '.join(self.named)}{more}"
