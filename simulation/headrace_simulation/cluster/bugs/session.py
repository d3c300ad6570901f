"""Bugs of sessions, of what serves them, and of the nodes they are at."""

from __future__ import annotations

from typing import Any, Final

from headrace_broker.catalog.machine import Catalog
from headrace_broker.model.session import session_id
from headrace_broker.runtime.cluster.boot_claim import BootClaim
from headrace_broker.runtime.dead_letter.at_least_once import QueueDeadLetters
from headrace_broker.runtime.hosting.hosting import Hosting
from headrace_broker.runtime.replica.feed import cut_run
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.session.consuming import Consuming
from headrace_broker.runtime.session.lane import PublishLane
from headrace_broker.runtime.session.publishing import Publishing
from headrace_broker.runtime.session.settling import Control
from headrace_broker.runtime.session.subscription import Subscription
from headrace_raftlog.transport.peer_session import PeerSession
from headrace_simulation.cluster.bugs.bug import Mutation, put, put_all


def _settles_lost() -> None:
    def resend(self: Any) -> None:
        for command in list(self.lane.pending):
            self.answer(command.number, 0, 0)

    put(Control, "resend", lambda _: resend)


def _publishes_lost() -> None:
    def resend(self: Any) -> None:
        for command in list(self.lane.pending):
            self.confirm(command.last)

    put(Publishing, "resend", lambda _: resend)


def _not_sent_again() -> None:
    put(Publishing, "resend", lambda _: lambda self: self._unsent.clear())


def _dead_letters_lost() -> None:
    put(QueueDeadLetters, "_refill", lambda _: lambda self: None)


def _boots_repeat() -> None:
    async def wait(self: Any) -> None:
        del self

    put(BootClaim, "wait", lambda _: wait)


def _confirmed_when_sent() -> None:
    def made(original: Any) -> Any:
        def send(self: Any, command: Any) -> None:
            original(self, command)
            self.confirm(command.last)

        return send

    put(Publishing, "_send", made)


def _ahead() -> None:
    put(Publishing, "confirm", lambda original: lambda self, number: original(self, number + 1))


def _confirmed_twice() -> None:
    def made(original: Any) -> Any:
        def answer(self: Any, answered: list[Any]) -> None:
            original(self, answered)
            original(self, answered[-1:])

        return answer

    put(Publishing, "_answer", made)


def _wrong_bodies() -> None:
    def made(original: Any) -> Any:
        def cut(consumer: int, group: Any, entry: bytes) -> Any:
            run = original(consumer, group, entry)
            run.positions = list(reversed(run.positions))
            return run

        return cut

    put_all(cut_run, made)


def _disordered() -> None:
    def made(original: Any) -> Any:
        return lambda self, batch, cost: original(self, list(reversed(batch)), cost)

    put(PublishLane, "_seal", made)


def _deaths_untold() -> None:
    put(QueueHost, "node_down", lambda _: lambda self, node, boot_kept: True)


def _alike() -> None:
    def made(original: Any) -> Any:
        def number(node: int, boot: int, number: int, deaths: bool = False) -> int:
            del boot
            found: int = original(node, 1, number, deaths)
            return found

        return number

    put_all(session_id, made)


def _void_settles() -> None:
    put(Subscription, "to_queue", lambda _: lambda self, first, last: (first, last))


def _asked_anew() -> None:
    def made(original: Any) -> Any:
        def resync(self: Any, subscription: Any) -> None:
            subscription.expected = 1
            original(self, subscription)

        return resync

    put(Consuming, "_resync", made)


def _not_attached_again() -> None:
    put(Consuming, "restart", lambda _: lambda self, consumer: None)


def _feeds_end() -> None:
    put(Consuming, "resync_all", lambda _: lambda self: None)


def _never_repaid() -> None:
    put(Publishing, "_repay", lambda _: lambda self, messages, byte_count: None)


def _groups_repeat() -> None:
    def made(original: Any) -> Any:
        def apply(self: Any, *args: Any) -> Any:
            found = original(self, *args)
            groups = [queue.group for queue in self.queues()]
            self.next_group = max(groups, default=0) + 1
            return found

        return apply

    put(Catalog, "apply", made)


def _peers_stay() -> None:
    put(PeerSession, "check_liveness", lambda _: lambda self, silence_s_max, excused_s: None)


def _sessions_kept() -> None:
    def made(original: Any) -> Any:
        def closed(self: Any, number: int) -> None:
            session = self._sessions.get(number)
            original(self, number)
            if session is not None:
                self._sessions[number] = session

        return closed

    put(Hosting, "session_closed", made)


MUTATIONS: Final = (
    Mutation(
        "settles-lost-at-failover",
        "settles that are not answered count as applied when the leader changes",
        *("process", 20, _settles_lost),
    ),
    Mutation(
        "publishes-lost-at-failover",
        "publishes that are not answered are confirmed when the leader changes",
        *("process", 20, _publishes_lost),
    ),
    Mutation(
        "publishes-not-sent-again",
        "publishes that are not answered stay so when the leader changes",
        *("process", 20, _not_sent_again),
    ),
    Mutation(
        "dead-letters-lost-at-failover",
        "a new leader does not send the dead letters that wait",
        *("process", 20, _dead_letters_lost),
    ),
    Mutation(
        "boot-counts-repeat",
        "a node that lost its disk counts its starts from 1 again",
        *("loss", 60, _boots_repeat),
    ),
    Mutation(
        "confirms-when-sent",
        "publishes are confirmed when they are sent to the leader",
        *("network", 20, _confirmed_when_sent),
    ),
    Mutation(
        "confirms-run-ahead",
        "a publish is confirmed with the one before it",
        *("network", 20, _ahead),
        is_found=False,
    ),
    Mutation("confirms-twice", "a publish is confirmed twice", "calm", 5, _confirmed_twice),
    Mutation(
        "deliveries-with-bodies-of-others",
        "a delivery has the body of another message of its entry",
        *("calm", 5, _wrong_bodies),
    ),
    Mutation(
        "publishes-overtake",
        "what gathered is published with the last one first",
        *("calm", 5, _disordered),
    ),
    Mutation(
        "deaths-of-nodes-untold",
        "a queue is not told of nodes that died",
        *("process", 20, _deaths_untold),
    ),
    Mutation(
        "sessions-numbered-alike",
        "sessions have the numbers of those before a restart",
        *("process", 20, _alike),
    ),
    Mutation(
        "void-settles-count",
        "settles of deliveries before a consumer was attached again count",
        *("network", 30, _void_settles),
        is_found=False,
    ),
    Mutation(
        "deliveries-twice",
        "a consumer asks a new leader for what it has been given already",
        *("process", 20, _asked_anew),
    ),
    Mutation(
        "consumers-not-attached-again",
        "a consumer that its queue gave up is not attached again",
        *("network", 20, _not_attached_again),
        is_found=False,
    ),
    Mutation(
        "feeds-end-at-failover",
        "a consumer does not ask a new leader for its deliveries",
        *("process", 20, _feeds_end),
        is_found=False,
    ),
    Mutation(
        "credit-not-returned",
        "publishes that are confirmed go on counting against their account",
        *("calm", 5, _never_repaid),
    ),
    Mutation(
        "groups-repeat",
        "a queue gets the number of one that was deleted",
        *("moves", 20, _groups_repeat),
    ),
    Mutation(
        "silent-peers-stay-up",
        "a peer that is not heard counts as connected",
        *("network", 20, _peers_stay),
        is_found=False,
    ),
    Mutation(
        "sessions-kept", "a node keeps sessions that are closed", *("churn", 2, _sessions_kept)
    ),
)
