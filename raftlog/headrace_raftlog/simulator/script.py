"""Golden scripts: a group driven step by step, every effect written down.

A script is a sequence of blocks: commands, a line `----`, the output, an empty line. Nothing
happens by itself: messages wait in the network until they are delivered, writes wait on the disk
until they are persisted. `#` begins a comment line. Commands, members being numbers:

    group voters=1,2,3 [learners=4] [option=value ...]   create members; CoreOptions by name
    log M terms=1,1,2 [term=2] [vote=0] [commit=0]        member M starts with this durable log
    tick M [count]         campaign M         wake M         propose M text [text ...]
    transfer M to          unreachable M peer
    ready M                take one Ready: entries become visible, `messages` leave, writes wait
    persist M [count]      finish the oldest waiting write (or `count`), release its messages
    persist-until M        finish all waiting writes with one call, as a group commit does
    deliver [from=M] [to=M] [kind=K]          deliver what waits in the network now
    drop [from=M] [to=M] [kind=K]             lose it
    keep [from=M] [to=M] [kind=K]             remember copies of it
    again                                     put the remembered copies into the network
    stabilize [M ...]      ready, persist and deliver among these members until nothing is left
    settle [M ...]         the same, untold
    message K A->B term=T [index=I] [log_term=T] [commit=C] [entries=I/T,I/T]   put a message
                           of one's own making into the network
    crash M                lose what is not persisted      restart M
    status [M ...]         role, term, vote, leader, commit, applied, terms of the log
    progress M             what leader M knows of the others
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headrace_raftlog.core.progress import STATE_NAMES
from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry, HardState
from headrace_raftlog.model.group import ROLE_NAMES, CoreOptions, GroupConfig
from headrace_raftlog.model.message import MESSAGE_NAMES, Message
from headrace_raftlog.model.ready import Ready
from headrace_raftlog.simulator.memory_log import MemoryLog

GROUP = 7
ROUNDS_MAX = 100  # of `stabilize`, beyond which a script is wrong
KINDS = {name: kind for kind, name in MESSAGE_NAMES.items()}


class Member:
    """One member of a script's group: a core, its log, its disk."""

    def __init__(self, member: int) -> None:
        self.member = member
        self.core: RaftCore | None = None
        self.log = MemoryLog([])
        self.durable: list[Entry] = []
        self.hard_state = HardState(0, 0, 0)
        self.writing: deque[Ready] = deque()

    def live(self) -> RaftCore:
        """Return the core of a member that runs."""
        if self.core is None:
            raise ValueError(f"member {self.member} is down")
        return self.core


class Script:
    """Interprets the commands of one script.

    Args:
        core_type: the core under test.
    """

    def __init__(self, core_type: type[RaftCore] = RaftCore) -> None:
        self.core_type = core_type
        self.members: dict[int, Member] = {}
        self.voters: tuple[int, ...] = ()
        self.learners: tuple[int, ...] = ()
        self.options = CoreOptions()
        self.network: list[Message] = []
        self.kept: list[Message] = []
        self.output: list[str] = []
        self.commands: dict[str, Callable[[list[str]], None]] = {
            "group": self._group,
            "log": self._log,
            "tick": self._tick,
            "campaign": lambda words: self._live(words).campaign(),
            "wake": lambda words: self._live(words).wake(),
            "propose": self._propose,
            "transfer": lambda words: self._say(str(self._live(words).transfer(int(words[1])))),
            "unreachable": lambda words: self._live(words).report_unreachable(int(words[1])),
            "ready": lambda words: self._ready(self.members[int(words[0])]),
            "persist": self._persist,
            "persist-until": self._persist_until,
            "deliver": self._deliver,
            "drop": lambda words: self._each("lost", self._take(words)),
            "keep": lambda words: self.kept.extend(self._matching(words)),
            "again": self._again,
            "stabilize": self._stabilize,
            "settle": self._settle,
            "message": self._message,
            "crash": self._crash,
            "restart": lambda words: self._restart(self.members[int(words[0])]),
            "status": self._status,
            "progress": self._progress,
        }

    def run(self, commands: str) -> str:
        """Run the commands of one block and return its output, "ok" where there is none.

        Raises:
            KeyError: a command or member does not exist.
            ValueError: an argument is wrong, or a member is down.
        """
        self.output = []
        for line in commands.splitlines():
            words = line.split()
            if words and not line.startswith("#"):
                self.commands[words[0]](words[1:])
        return "\n".join(self.output or ["ok"])

    def _say(self, line: str) -> None:
        self.output.append(line)

    def _each(self, what: str, messages: list[Message]) -> None:
        for message in messages:
            self._say(f"{what} {message!r}")

    def _live(self, words: list[str]) -> RaftCore:
        return self.members[int(words[0])].live()

    def _group(self, words: list[str]) -> None:
        named = _named(words)
        self.voters = _numbers(named.pop("voters"))
        self.learners = _numbers(named.pop("learners", ""))
        self.options = CoreOptions(**{name: int(value) for name, value in named.items()})
        for number in self.voters + self.learners:
            self.members[number] = Member(number)
            self._restart(self.members[number])

    def _log(self, words: list[str]) -> None:
        member = self.members[int(words[0])]
        named = _named(words[1:])
        terms = _numbers(named["terms"])
        member.durable = [
            Entry(index, term, ENTRY_NORMAL, b"%d/%d" % (index, term))
            for index, term in enumerate(terms, 1)
        ]
        last_term = terms[-1] if terms else 0
        member.hard_state = HardState(
            int(named.get("term", last_term)),
            int(named.get("vote", 0)),
            int(named.get("commit", 0)),
        )
        self._restart(member)

    def _restart(self, member: Member) -> None:
        member.log = MemoryLog(list(member.durable))
        member.core = self.core_type(
            GroupConfig(GROUP, member.member, self.voters, self.learners),
            self.options,
            member.log,
            member.hard_state,
            0,
            member.member,
        )

    def _crash(self, words: list[str]) -> None:
        member = self.members[int(words[0])]
        member.core = None
        for ready in member.writing:
            self._say(f"{member.member} forgets ready {ready.number}")
        member.writing.clear()

    def _tick(self, words: list[str]) -> None:
        core = self._live(words)
        for _ in range(int(words[1]) if len(words) > 1 else 1):
            core.tick()

    def _propose(self, words: list[str]) -> None:
        self._say(str(self._live(words).propose([word.encode() for word in words[1:]])))

    def _ready(self, member: Member) -> None:
        core = member.live()
        if not core.has_ready():
            self._say(f"{member.member} has nothing ready")
            return
        ready = core.ready()
        self._tell_ready(member, ready)
        if ready.entries:
            member.log.append(ready.entries)
        self.network.extend(ready.messages)
        if ready.must_sync or ready.messages_after_persist:
            member.writing.append(ready)
        if ready.committed:
            core.applied(ready.committed[-1].index)

    def _tell_ready(self, member: Member, ready: Ready) -> None:
        self._say(
            f"{member.member} ready {ready.number}: {ROLE_NAMES[ready.role]} t{ready.term} "
            f"leader {ready.leader}"
        )
        if ready.hard_state is not None:
            self._say(f"  write {ready.hard_state!r}")
        if ready.entries:
            self._say(f"  write {_entries(ready.entries)}")
        for message in ready.messages:
            self._say(f"  send {message!r}")
        for message in ready.messages_after_persist:
            self._say(f"  then {message!r}")
        if ready.committed:
            self._say(f"  apply {_entries(ready.committed)}")

    def _persist(self, words: list[str]) -> None:
        member = self.members[int(words[0])]
        for _ in range(int(words[1]) if len(words) > 1 else 1):
            ready = member.writing.popleft()
            self._store(member, ready)
            member.live().persisted(ready.number)

    def _persist_until(self, words: list[str]) -> None:
        member = self.members[int(words[0])]
        number = member.writing[-1].number
        while member.writing:
            self._store(member, member.writing.popleft())
        member.live().persisted(number)

    def _store(self, member: Member, ready: Ready) -> None:
        if ready.hard_state is not None:
            member.hard_state = ready.hard_state
        for entry in ready.entries:
            del member.durable[entry.index - 1 :]
            member.durable.append(entry)
        self.network.extend(ready.messages_after_persist)

    def _matching(self, words: list[str]) -> list[Message]:
        named = _named(words)
        return [
            message
            for message in self.network
            if int(named.get("from", message.source)) == message.source
            and int(named.get("to", message.target)) == message.target
            and KINDS[named.get("kind", MESSAGE_NAMES[message.kind])] == message.kind
        ]

    def _take(self, words: list[str]) -> list[Message]:
        taken = self._matching(words)
        self.network = [
            message for message in self.network if not any(message is other for other in taken)
        ]
        return taken

    def _deliver(self, words: list[str]) -> None:
        for message in self._take(words):
            self._arrive(message)

    def _arrive(self, message: Message) -> None:
        core = self.members[message.target].core
        if core is None:
            self._say(f"lost {message!r}")
        else:
            self._say(f"arrived {message!r}")
            core.step(message)

    def _again(self, _: list[str]) -> None:
        self.network.extend(self.kept)
        self.kept = []

    def _stabilize(self, words: list[str]) -> None:
        numbers = [int(word) for word in words] or list(self.members)
        for _ in range(ROUNDS_MAX):
            if not self._round(numbers):
                return
        raise ValueError("the group does not come to rest")

    def _settle(self, words: list[str]) -> None:
        told = len(self.output)
        self._stabilize(words)
        del self.output[told:]

    def _message(self, words: list[str]) -> None:
        source, _, target = words[1].partition("->")
        named = _named(words[2:])
        entries = []
        for text in filter(None, named.get("entries", "").split(",")):
            index, _, term = text.partition("/")
            entries.append(Entry(int(index), int(term), ENTRY_NORMAL, text.encode()))
        self.network.append(
            Message(
                KINDS[words[0]],
                GROUP,
                int(source),
                int(target),
                int(named["term"]),
                index=int(named.get("index", 0)),
                log_term=int(named.get("log_term", 0)),
                commit=int(named.get("commit", 0)),
                entries=entries,
            )
        )

    def _round(self, numbers: list[int]) -> bool:
        moved = False
        for number in numbers:
            member = self.members[number]
            while member.core is not None and member.core.has_ready():
                self._ready(member)
                moved = True
            while member.core is not None and member.writing:
                self._persist([str(number)])
                moved = True
        waiting = [
            message
            for message in self.network
            if message.target in numbers and message.source in numbers
        ]
        self.network = [message for message in self.network if message not in waiting]
        for message in waiting:
            self._arrive(message)
        return moved or bool(waiting)

    def _status(self, words: list[str]) -> None:
        for number in [int(word) for word in words] or list(self.members):
            member = self.members[number]
            core = member.core
            if core is None:
                self._say(f"{number} down")
                continue
            terms = ",".join(str(entry.term) for entry in member.log.items)
            silent = " quiesced" if core.quiesced else ""
            self._say(
                f"{number} {ROLE_NAMES[core.role]} t{core.term} vote {core.vote} "
                f"leader {core.leader} commit {core.commit_index} "
                f"applied {core.applied_index} log [{terms}]{silent}"
            )

    def _progress(self, words: list[str]) -> None:
        core = self._live(words)
        for peer in self.voters + self.learners:
            progress = core.progress(peer)
            if progress is not None:
                self._say(
                    f"{peer} {STATE_NAMES[progress.state]} match {progress.match} "
                    f"next {progress.next_index} inflight {len(progress.inflight)}"
                )


def replay(text: str, core_type: type[RaftCore] = RaftCore) -> str:
    """Run a whole script and return it with the outputs that its commands really gave."""
    script = Script(core_type)
    blocks: list[str] = []
    for block in text.strip().split("\n\n"):
        commands, separator, _ = block.partition("\n----")
        blocks.append(f"{commands}\n----\n{script.run(commands)}" if separator else block)
    return "\n\n".join(blocks) + "\n"


def _named(words: list[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator:
            raise ValueError(f"expected name=value, got {word!r}")
        named[name] = value
    return named


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word)


def _entries(entries: list[Entry]) -> str:
    return " ".join(f"{entry.index}/t{entry.term}" for entry in entries)
