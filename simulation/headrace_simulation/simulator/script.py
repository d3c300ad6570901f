"""Golden scripts: a group driven step by step, every effect written down.

A script is a sequence of blocks: commands, a line `----`, the output, an empty line. Nothing
happens by itself: messages wait in the network until they are delivered, writes wait on the disk
until they are persisted. `#` begins a comment line. Commands, members being numbers:

    group voters=1,2,3 [learners=4] [id=7] [option=value ...]   create members; an earlier group
                           is gone, with its disks; CoreOptions by name
    join M                 create a member that waits to be admitted
    log M terms=1,1,2 [term=2] [vote=0] [commit=0]        member M starts with this durable log
    tick M [count]         campaign M         wake M         lose-leader M
    propose M text [text ...]                 urgent M text [text ...]
    transfer M to          unreachable M peer
    membership M voters=1,2,4 [learners=5]    leader M begins to change who belongs to the group
    read M context         ask how far M must have applied to answer a read that begins now
    ready M                take one Ready: entries become visible, `messages` leave, writes wait
    persist M [count]      finish the oldest waiting write (or `count`), release its messages
    persist-until M        finish all waiting writes with one call, as a group commit does
    snapshot M index       M replaces its log up to `index` by a snapshot of its own
    restore M [from]       M has fetched the snapshot that it was offered, as it is by now, from
                           its leader, or from another member; the write waits
    deliver [from=M] [to=M] [kind=K]          deliver what waits in the network now
    drop [from=M] [to=M] [kind=K]             lose it
    keep [from=M] [to=M] [kind=K]             remember copies of it
    again                                     put the remembered copies into the network
    stabilize [M ...]      ready, persist and deliver among these members until nothing is left
    settle [M ...]         the same, untold
    message K A->B term=T [index=I] [log_term=T] [commit=C] [context=C] [entries=I/T,I/T]   put a
                           message of one's own making into the network
    crash M                lose what is not persisted      restart M
    status [M ...]         role, term, vote, leader, commit, applied, terms of the log
    members [M ...]        the membership that each goes by
    texts M                what the entries of M's log hold
    progress M             what leader M knows of the others
"""

from __future__ import annotations

from collections.abc import Callable

from headrace_raftlog.core.progress import STATE_NAMES
from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.model.entry import ENTRY_CONFIG, ENTRY_NORMAL, Entry, HardState
from headrace_raftlog.model.group import (
    BUSY,
    NOT_CAUGHT_UP,
    NOT_LEADER,
    QUEUED,
    ROLE_NAMES,
    CoreOptions,
)
from headrace_raftlog.model.membership import NOBODY, Membership, decode_membership
from headrace_raftlog.model.message import (
    HEARTBEAT,
    HEARTBEAT_REPLY,
    MESSAGE_NAMES,
    READ_INDEX,
    READ_INDEX_REPLY,
    Message,
)
from headrace_raftlog.model.ready import Ready
from headrace_simulation.simulator.scripted_member import ScriptedMember

GROUP = 7  # unless a script says otherwise
ROUNDS_MAX = 100  # of `stabilize`, beyond which a script is wrong
KINDS = {name: kind for kind, name in MESSAGE_NAMES.items()}
NUMBERED = (HEARTBEAT, HEARTBEAT_REPLY, READ_INDEX, READ_INDEX_REPLY)  # their context is told
REFUSALS = {
    QUEUED: "queued",
    NOT_LEADER: "not leader",
    BUSY: "busy",
    NOT_CAUGHT_UP: "not caught up",
}


class Script:
    """Interprets the commands of one script.

    Args:
        core_type: the core under test.
    """

    def __init__(self, core_type: type[RaftCore] = RaftCore) -> None:
        self.core_type = core_type
        self.members: dict[int, ScriptedMember] = {}
        self.group = GROUP
        self.options = CoreOptions()
        self.network: list[Message] = []
        self.kept: list[Message] = []
        self.output: list[str] = []
        self.commands: dict[str, Callable[[list[str]], None]] = {
            "group": self._group,
            "join": lambda words: self._create(int(words[0]), NOBODY),
            "log": self._log,
            "tick": self._tick,
            "campaign": lambda words: self._live(words).campaign(),
            "wake": lambda words: self._live(words).wake(),
            "lose-leader": lambda words: self._live(words).lose_leader(),
            "propose": lambda words: self._propose(words, False),
            "urgent": lambda words: self._propose(words, True),
            "membership": self._membership,
            "read": lambda words: self._say(str(self._live(words).read_index(int(words[1])))),
            "transfer": lambda words: self._say(str(self._live(words).transfer(int(words[1])))),
            "unreachable": lambda words: self._live(words).report_unreachable(int(words[1])),
            "ready": lambda words: self._ready(self.members[int(words[0])]),
            "persist": self._persist,
            "persist-until": self._persist_until,
            "snapshot": lambda words: self.members[int(words[0])].save(int(words[1])),
            "restore": self._restore,
            "deliver": self._deliver,
            "drop": lambda words: self._each("lost", self._take(words)),
            "keep": lambda words: self.kept.extend(self._matching(words)),
            "again": self._again,
            "stabilize": self._stabilize,
            "settle": self._settle,
            "message": self._message,
            "crash": self._crash,
            "restart": lambda words: self.members[int(words[0])].restart(),
            "status": self._status,
            "members": self._members,
            "texts": lambda words: self._say(_texts(self.members[int(words[0])].log.items)),
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
            self._say(f"{what} {_told(message)}")

    def _live(self, words: list[str]) -> RaftCore:
        return self.members[int(words[0])].live()

    def _group(self, words: list[str]) -> None:
        named = _named(words)
        founding = Membership(_numbers(named.pop("voters")), _numbers(named.pop("learners", "")))
        self.group = int(named.pop("id", GROUP))
        self.options = CoreOptions(**{name: int(value) for name, value in named.items()})
        self.members = {}
        for number in founding.everyone():
            self._create(number, founding)

    def _create(self, number: int, founding: Membership) -> None:
        self.members[number] = ScriptedMember(
            self.core_type, self.group, number, founding, self.options
        )

    def _log(self, words: list[str]) -> None:
        named = _named(words[1:])
        terms = _numbers(named["terms"])
        hard_state = HardState(
            int(named.get("term", terms[-1] if terms else 0)),
            int(named.get("vote", 0)),
            int(named.get("commit", 0)),
        )
        self.members[int(words[0])].begin_with(terms, hard_state)

    def _crash(self, words: list[str]) -> None:
        for name in self.members[int(words[0])].crash():
            self._say(f"{words[0]} forgets {name}")

    def _tick(self, words: list[str]) -> None:
        core = self._live(words)
        for _ in range(int(words[1]) if len(words) > 1 else 1):
            core.tick()

    def _propose(self, words: list[str], urgent: bool) -> None:
        index = self._live(words).propose([word.encode() for word in words[1:]], urgent)
        self._say(REFUSALS.get(index, str(index)))

    def _membership(self, words: list[str]) -> None:
        named = _named(words[1:])
        voters, learners = _numbers(named["voters"]), _numbers(named.get("learners", ""))
        index = self._live(words).propose_membership(voters, learners)
        self._say(REFUSALS.get(index, str(index)))

    def _ready(self, member: ScriptedMember) -> None:
        if not member.live().has_ready():
            self._say(f"{member.member} has nothing ready")
            return
        ready = member.take()
        self._tell_ready(member.member, ready)
        self.network.extend(ready.messages)

    def _tell_ready(self, member: int, ready: Ready) -> None:
        self._say(
            f"{member} ready {ready.number}: {ROLE_NAMES[ready.role]} t{ready.term} "
            f"leader {ready.leader}"
        )
        if ready.hard_state is not None:
            self._say(f"  write {ready.hard_state!r}")
        if ready.entries:
            self._say(f"  write {_entries(ready.entries)}")
        if ready.membership is not None:
            self._say(f"  members {ready.membership!r}")
        self._each("  send", ready.messages)
        self._each("  then", ready.messages_after_persist)
        if ready.committed:
            self._say(f"  apply {_entries(ready.committed)}")
        if ready.offer is not None:
            self._say(f"  fetch: {ready.offer!r}")
        for context, index in ready.read_states:
            self._say(f"  read {context} at {index}")
        for context in ready.reads_lost:
            self._say(f"  read {context} lost")

    def _persist(self, words: list[str]) -> None:
        member = self.members[int(words[0])]
        for _ in range(int(words[1]) if len(words) > 1 else 1):
            item = member.oldest()
            self.network.extend(member.write())
            if isinstance(item, Ready):
                member.live().persisted(item.number)

    def _persist_until(self, words: list[str]) -> None:
        member = self.members[int(words[0])]
        number = max(item.number for item in member.writing if isinstance(item, Ready))
        while member.writing:
            self.network.extend(member.write())
        member.live().persisted(number)

    def _restore(self, words: list[str]) -> None:
        member = self.members[int(words[0])]
        if member.offer is None:
            raise ValueError(f"member {member.member} was offered no snapshot")
        source = int(words[1]) if len(words) > 1 else member.offer.leader
        snapshot = self.members[source].log.snapshot
        if snapshot is None:
            raise ValueError(f"member {source} has no snapshot")
        what = f"snapshot {snapshot.index}/t{snapshot.term}"
        if member.restore(snapshot):
            self._say(f"{member.member} restores {what}, ends at {member.live().last_index}")
        else:
            self._say(f"{member.member} refuses {what}")

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
        member = self.members.get(message.target)
        core = None if member is None else member.core
        if core is None:
            self._say(f"lost {_told(message)}")
        else:
            self._say(f"arrived {_told(message)}")
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
                self.group,
                int(source),
                int(target),
                int(named["term"]),
                index=int(named.get("index", 0)),
                log_term=int(named.get("log_term", 0)),
                commit=int(named.get("commit", 0)),
                entries=entries,
                context=int(named.get("context", 0)),
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
            begin = f"{member.log.snapshot_index}/t{member.log.snapshot_term}|"
            begin = begin if member.log.snapshot is not None else ""
            self._say(
                f"{number} {ROLE_NAMES[core.role]} t{core.term} vote {core.vote} "
                f"leader {core.leader} commit {core.commit_index} "
                f"applied {core.applied_index} log [{begin}{terms}]{silent}"
            )

    def _members(self, words: list[str]) -> None:
        for number in [int(word) for word in words] or list(self.members):
            core = self.members[number].core
            if core is not None:
                changing = " changing" if core.is_changing else ""
                known = repr(core.membership) if core.membership.voters else "nobody"
                self._say(f"{number} knows {known}{changing}")

    def _progress(self, words: list[str]) -> None:
        core = self._live(words)
        for peer in sorted(self.members):
            progress = core.progress(peer)
            if progress is not None:
                self._say(
                    f"{peer} {STATE_NAMES[progress.state]} match {progress.match} "
                    f"next {progress.next_index} inflight {len(progress.inflight)}"
                )
        if core.transferee:
            self._say(f"hands over to {core.transferee}")


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


def _texts(entries: list[Entry]) -> str:
    return " ".join(entry.data.decode() or "-" for entry in entries if entry.kind != ENTRY_CONFIG)


def _entries(entries: list[Entry]) -> str:
    return " ".join(_entry(entry) for entry in entries)


def _entry(entry: Entry) -> str:
    if entry.kind == ENTRY_CONFIG:
        return f"{entry.index}/t{entry.term}({decode_membership(entry.data)!r})"
    return f"{entry.index}/t{entry.term}"


def _told(message: Message) -> str:
    if message.context and message.kind in NUMBERED:
        return f"{message!r} context {message.context}"
    return repr(message)
