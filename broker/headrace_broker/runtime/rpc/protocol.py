"""Questions, answers and refusals as they travel between nodes."""

from __future__ import annotations

from typing import ClassVar, Final, Generic, TypeVar

import msgspec

from headrace_broker.runtime.contract.payload import Payload

# Refusals of every kind of question, on both ends; handlers add their own.
UNREACHABLE: Final = "unreachable"  # the question did not leave
SILENT: Final = "silent"  # there was no answer in time
GONE: Final = "gone"  # the node went, or came back as another process
BUSY: Final = "busy"  # as many questions are under way as may be
UNKNOWN: Final = "unknown"  # it does not understand the question, or this node not the answer
TOO_LARGE: Final = "too_large"  # question or answer is larger than may be sent
FAILED: Final = "failed"  # the handler met a bug, or a disk that fails
NO_ANSWER: Final = (UNREACHABLE, SILENT, GONE, BUSY, UNKNOWN, TOO_LARGE, FAILED)

ANSWERED: Final = "answered"
REFUSED: Final = "refused"  # by a handler
LATE: Final = "late"  # an answer that nobody waited for
OUTCOMES: Final = (ANSWERED, REFUSED, LATE, *NO_ANSWER)

# Pools of places for questions: those of one pool take no place from those of another.
SHORT: Final = "short"  # answered at once, or soon
COMMANDS: Final = "commands"  # wait until a queue's log commits
READS: Final = "reads"  # wait for a disk
BACKUPS: Final = "backups"  # wait for a disk, or until a replica has caught up

A = TypeVar("A")


class Question(msgspec.Struct, Generic[A], frozen=True):
    """A request to a node; each kind is a subclass with a tag, and names the answer's type.

    Attributes:
        pool: of the places that it takes.
    """

    pool: ClassVar[str] = SHORT


class Ask(Payload, tag="ask"):
    """A question on its way.

    Attributes:
        number: returns with the answer; 0 where nobody waits for one.
        wait_ms: how long the answer is waited for.
    """

    number: int
    wait_ms: int
    question: msgspec.Raw


class Cancel(Payload, tag="cancel"):
    """Notice that an answer is not awaited any more.

    Attributes:
        number: of the question.
    """

    number: int


class Answer(Payload, tag="answer"):
    """An answer on its way.

    Attributes:
        number: of the question.
        result: nil with a failure.
        failure: kind of the refusal, "" for none.
        text: of the refusal, for people.
        detail: a number that goes with it.
    """

    number: int
    result: msgspec.Raw = msgspec.Raw(b"\xc0")
    failure: str = ""
    text: str = ""
    detail: int = 0


class RpcError(Exception):
    """A refusal.

    Attributes:
        failure: its kind.
        detail: a number that goes with it.
    """

    def __init__(self, failure: str, text: str, detail: int = 0) -> None:
        super().__init__(text)
        self.failure = failure
        self.detail = detail


class NoAnswerError(RpcError):
    """A node gave no answer, for a reason of `NO_ANSWER`; what it did is not known."""
