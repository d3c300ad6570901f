"""Failure of a command: one line, and an exit code that programs can use."""

from __future__ import annotations

import re
from typing import Final

from pyspark.errors import PySparkException

from headrace_client.error import HeadraceError
from headrace_pipeline.error import OptionError, PipelineError

EXIT_FAILED: Final = 1  # it was tried
EXIT_USAGE: Final = 2  # as click has it: it was not even tried

# The last of these in a trace that Spark hands on is the cause.
_RAISED: Final = re.compile(r"^(?:pyspark\S*\.)?([\w.]+(?:Error|Exception|Interrupt)): (.*)$", re.M)
_OWN: Final = "headrace_"


def is_expected(error: BaseException) -> bool:
    """Return whether an error is about the user's options, data, brokers or machine, and no bug."""
    return isinstance(error, PipelineError | HeadraceError | PySparkException | OSError)


def one_line(error: BaseException) -> str:
    """Return what went wrong in one line.

    An error of a source or sink in a worker comes out of Spark as a page of traces in a trace: the
    line that names it is found, one of ours before all others.
    """
    text = str(error) or type(error).__name__
    if isinstance(error, PySparkException):
        raised = _RAISED.findall(text)
        ours = [said for name, said in raised if name.startswith(_OWN)]
        others = [f"{name.rpartition('.')[2]}: {said}" for name, said in raised]
        text = (ours or others or [text])[-1]
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def exit_code(error: BaseException) -> int:
    """Return EXIT_USAGE for an option that is wrong, also in a worker, else EXIT_FAILED."""
    is_option = isinstance(error, OptionError) or one_line(error).startswith("option ")
    return EXIT_USAGE if is_option else EXIT_FAILED
