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
    """A request to a node; each kind is a subclass with a tag, and names the answer's type."""

    pool: ClassVar[str] = SHORT  # of the places that it takes


class Ask(Payload, tag="ask"):
    """A question on its way."""

    number: int  # returns with the answer; 0 where nobody waits for one
    wait_ms: int  # how long the answer is waited for
    question: msgspec.Raw


class Cancel(Payload, tag="cancel"):
    """Notice that an answer is not awaited any more."""

    number: int  # of the question


class Answer(Payload, tag="answer"):
    """An answer on its way."""

    number: int  # of the question
    result: msgspec.Raw = msgspec.Raw(b"\xc0")  # nil with a failure
    failure: str = ""  # kind of the refusal, "" for none
    text: str = ""  # of the refusal, for people
    detail: int = 0  # a number that goes with it


class RpcError(Exception):
    """A refusal."""

    def __init__(self, failure: str, text: str, detail: int = 0) -> None:
        super().__init__(text)
        self.failure = failure  # its kind
        self.detail = detail  # a number that goes with it


class NoAnswerError(RpcError):
    """A node gave no answer, for a reason of `NO_ANSWER`; what it did is not known."""
