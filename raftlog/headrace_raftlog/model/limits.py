"""Every bound of the replicated log: one line each, with unit and reason."""

from __future__ import annotations

from typing import Final

NODE_ID_MAX: Final = 1023  # ids fit 10 bits in the application's session ids

# Transport: what one node holds for, and sends to, another.
ENTRY_BYTES_MAX: Final = 513 << 20  # bytes of one proposal: 512 MiB and what goes with them. Every node takes these of its peers, whatever it lets its own clients send
ENTRY_BYTES_PLAIN: Final = 32 << 20  # bytes of the longest entry and payload that a node takes which does not say how much it takes
PAYLOAD_BYTES_MAX: Final = ENTRY_BYTES_MAX  # bytes of one payload of the application, likewise
FRAME_GATHER_TURNS: Final = 2  # turns of the loop between the first thing for a peer and the frame; with 200 publishers 2 to 25 % more throughput, with one that waits for each confirm 3 to 8 % less
FRAME_PIECE_BYTES_MIN: Final = 32 << 10  # bytes of each quick queue in a frame, of the longest item in one, and of a fragment, on a slow link; 50 ms at 5 Mbit/s
FRAME_PIECE_PARTS: Final = 8  # pieces in what may be under way, on a fast link; each takes it an eighth of SEND_DELAY_S_MAX
FRAME_LARGE_BYTES_TARGET: Final = 2 << 20  # bytes of a frame of the large lane (one item always fits)
FRAME_BYTES_MAX: Final = ENTRY_BYTES_MAX + (8 << 20)  # bytes of a frame; the longest item, or several up to FRAME_LARGE_BYTES_TARGET. Nodes that do not fragment send two of ENTRY_BYTES_PLAIN in one
FRAME_TURN_BYTES_MAX: Final = 512 << 10  # bytes of a large frame written to a peer in one turn of the loop; some 0.3 ms
FRAME_ACK_BYTES: Final = 16 << 10  # bytes received for which the receiver sends one byte back
SEND_WINDOW_BYTES_MIN: Final = 64 << 10  # bytes under way to a peer, whatever the link does: two fragments
SEND_WINDOW_BYTES_MAX: Final = 8 << 20  # bytes under way to a peer; 40 MB/s to one whose loop takes 0.2 s
SEND_DELAY_S_MAX: Final = 0.35  # seconds that bytes may take longer than at the best; a third of the default election timeout
FRAME_WRITE_BYTES: Final = 1 << 20  # bytes of frames that the kernel has not taken yet, beyond which the next one gathers
STREAM_TICKET_BYTES: Final = 16  # bytes that nobody guesses
STREAM_TICKET_S_MAX: Final = 5.0  # seconds for which a ticket is good; a connection and a TLS handshake on a busy machine
CHALLENGE_S_MAX: Final = 10.0  # seconds for which the challenge of a join proof is good; a call on a busy machine
CHALLENGES_USED_MAX: Final = 4096  # challenges that nodes have answered rightly and that are not over yet; 64 nodes that call again and again need some hundred
STREAM_CALLERS_MAX: Final = 64  # connections that have shown no ticket yet; one more closes the oldest
STREAM_ACCEPT_S: Final = 0.005  # seconds between two connections that are accepted; handshakes of strangers take a fifth of a core at most
STREAM_UNHEARD_MS: Final = 15_000  # milliseconds until a connection breaks of whose bytes none gets through; notices a peer without its kernel
GRPC_MESSAGE_BYTES_MAX: Final = 40 << 20  # bytes of a message of gRPC: an entry that is sent whole to who does not take it in pieces, and what is around it
OUTBOX_CONTROL_BYTES_MAX: Final = 16 << 20  # bytes waiting per peer of messages without entries; beyond, they are dropped
OUTBOX_BYTES_MAX: Final = 48 << 20  # bytes waiting per peer of APPENDs, and as many of payloads; beyond, APPENDs are dropped and payloads refused. One always fits. `NodeOptions.outbox_bytes_max` is more where longer entries are usual
INBOX_HELD_BYTES_MAX: Final = 72 << 20  # bytes of frames held until their sender is reported up; one may be longer
MESSAGE_OVERHEAD_BYTES: Final = 64  # bytes reckoned beside data: a message, entry, payload
LAZY_FLUSH_S: Final = 0.002  # seconds that heartbeats wait for a frame to travel in
RECONNECT_DELAY_S_MIN: Final = 0.02  # seconds before the first new attempt after a lost stream
CLONE_HEARD_S: Final = 5.0  # seconds for which a process is heard beside a second one of its node until that is a copy
RECONNECT_DELAY_S_MAX: Final = 0.5  # seconds; doubled up to this while a peer stays away
HANDSHAKE_S_MAX: Final = 2.0  # seconds until a peer must have answered a new stream
REFUSALS_TOLD_MAX: Final = 64  # different reasons for refusing a stream that are logged once each
KEEPALIVE_MS: Final = 10_000  # milliseconds between HTTP/2 pings; notices a peer without its kernel
KEEPALIVE_TIMEOUT_MS: Final = 5_000  # milliseconds until an unanswered ping ends the connection

TICK_MS_MIN: Final = 5  # milliseconds; below, timers themselves would be the load
TICK_MS_MAX: Final = 10_000  # milliseconds
TURN_GROUPS_MAX: Final = 256  # groups served in one turn of the loop; beats leave between two turns, and a peer that hears none of them for a second is down

# Host: what is kept for groups that do not exist here yet.
HELD_MESSAGES_MAX: Final = 4096  # messages; the oldest go first, their senders repeat them
HELD_BYTES_MAX: Final = 16 << 20  # bytes, likewise
HELD_GROUP_MESSAGES_MAX: Final = 256  # messages of one group; the newest beyond it are dropped

WRITING_MESSAGES_MAX: Final = 16  # messages of one group that wait for the same write; a disk that hangs lets no more gather
ELECTIONS_PER_TICK: Final = 128  # silent groups of a lost node that begin elections in one tick, on average; more would take longer than their timers run, and begin anew
SPREAD_TIMEOUTS: Final = 2  # election timeouts over which these begin at most, however many there are
HANDOVERS_PER_TICK: Final = 256  # led groups given up in one tick by a node whose disk hangs; 10,000 in some seconds

# What is remembered of disks (storage/writing/mark_file.py).
MARK_SLOT_BYTES: Final = 256 << 10  # bytes of what a node remembers, at most: 1,023 nodes with as many disks each as are remembered
MARKS_WRITE_S: Final = 1.0  # seconds between two writes of it, and between two frames that pass it on; what is remembered durably lags by as much
DIRECTORY_LOOK_S: Final = 1.0  # seconds between two looks whether the open files are still in the data directory: stat calls, in another thread
DIRECTORY_LOOKS: Final = 2  # looks in a row that must find a file gone; one may meet the log as it changes files
DISKS_REMEMBERED_MAX: Final = 4  # disks remembered of each peer, those heard last; a node that has lost more is not known by the first
STARTS_KEPT: Final = 32  # starts of its disk that a node can tell of; a peer that has missed more compares with the oldest of them
STARTS_TEXT_CHARS_MAX: Final = 1024  # characters of a stream's metadata: that many starts with large numbers

# Core.
GROUP_MEMBERS_MAX: Final = 16  # member ids in each part of a membership; voters are 1 to 7
VOTERS_MAX: Final = 7  # of a group; more cost latency and add nothing
READS_WAITING_MAX: Final = 4096  # reads of one group under way at one member; more are refused
PROBE_BYTES_MAX: Final = 16 << 10  # bytes of entries in an APPEND that asks what a follower has: it may be repeated with each heartbeat
DOUBTS_MAX: Final = 64  # questions for votes that a silent member passes over before it asks its leader for a sign of life: a minute and a half of one that does not slow down, half an hour of one that does
GREETINGS_MAX: Final = 3  # questions for votes that a silent leader answers to their sender alone before it wakes its group
ASKED_PATIENT: Final = 3  # questions for votes in vain after which a member asks less and less often
ASKED_SLOWER_MAX: Final = 4  # doublings of the election timeout by then: 16 to 32 s between two questions
ENTRY_COST_BYTES: Final = 128  # bytes charged per uncommitted entry besides its data: objects cost

# The shared log (storage/).
SEGMENT_BYTES_DEFAULT: Final = 64 << 20  # bytes; one file, zero-filled in about 0.3 s
SEGMENT_BYTES_MIN: Final = 4 << 10  # bytes; room for a header and a few records (tests)
SEGMENT_BYTES_MAX: Final = (1 << 32) - 1  # bytes; an offset fits 32 bits of a packed location
ENTRY_CACHE_BYTES_DEFAULT: Final = 64 << 20  # bytes over all groups; what readers usually want
ENTRY_CACHE_OVERHEAD_BYTES: Final = 256  # bytes a cached entry costs besides its data
DEAD_LOOKS_MAX: Final = 256  # cached entries of a group that falls silent up to which dead ones among them are looked for: some 0.1 ms
READ_AHEAD_BYTES: Final = 4 << 20  # bytes the system is told of before they are read; some ms of a disk
READ_AHEAD_GAP_BYTES_MAX: Final = 1 << 20  # bytes passed over by a read that still counts as the next
READ_THREADS: Final = 4  # reads of segments under way beside the event loop; a disk does them together
READ_PIECE_BYTES: Final = 256 << 10  # bytes read at once where reads follow each other; about 1 ms of a disk
READ_CACHED_BYTES_MAX: Final = 1 << 20  # bytes of a piece that the event loop copies from the system's cache, 0.3 ms; longer ones are read by a thread
READ_PIECES_BYTES_MAX: Final = 32 << 20  # bytes of pieces in memory, used or under way; beside them one longer than half of that
READ_PIECES_MAX: Final = 64  # pieces in memory that nobody waits for; each read looks for its bytes in them
READ_CACHE_BYTES_MAX: Final = 8 << 20  # bytes of entries read from disk and kept for the next read of them
READ_CACHE_ENTRY_BYTES_MAX: Final = 1 << 20  # bytes of one of them; longer ones hold one message, read once
WRITE_BATCH_BYTES_MAX: Final = 8 << 20  # bytes in one write and sync; bounds how long one takes
WRITE_JOB_BYTES_MAX: Final = 4 << 20  # bytes that stay together in one batch; bounds file waste
WRITE_WHOLE_BYTES_MAX: Final = 2 << 20  # bytes of a job written and synced at once; a longer one is written in slices, between which batches of other groups are
WRITE_SLICE_BYTES: Final = 1 << 20  # bytes of such a slice: what is written beside waits some ms
CHECKSUM_BYTES_MAX: Final = 1 << 20  # bytes of an entry whose checksum the event loop takes, 0.3 ms; those of longer ones are for other threads
CHECKSUM_STEP_BYTES: Final = 16 << 20  # bytes of which the writer takes the checksum before batches of other groups have their turn, some 4 ms
OWN_SEGMENT_SHARE: Final = 8  # one part in so many of a record that has a segment of its own is left behind it, for what is written beside it
YIELD_AFTER_S: Final = 1e-3  # seconds between two moments in which a busy event loop gives the log's threads the interpreter lock
YIELD_AFTER_S_MAX: Final = 16e-3  # the same while no step of theirs ends: they wait for the disk, and not for the lock
YIELD_S: Final = 5e-5  # seconds of such a moment; a thread on another processor wakes within them
DISK_STALL_S: Final = 5.0  # seconds in which no step of a write ends, after which the disk hangs. A step is 8 MiB written and synced, a slice, or 1 MiB zeroed: 5 s is a disk of 2 MB/s, far below what ordinary stalls of a busy one leave
DISK_STALL_S_MIN: Final = 0.1  # seconds; below, an ordinary sync of a slow disk is taken for a stall
DISK_STALL_S_MAX: Final = 600.0  # seconds; above, it is never noticed in time to matter
DISK_STEADY_FRACTION: Final = 4  # of that time a step may take while a disk that hung is counted as answering again
WRITE_BACKLOG_BYTES_MAX: Final = 256 << 20  # bytes not yet durable; past it the host takes no more. `LogOptions.backlog_bytes_max` is more where longer entries are usual
OPEN_SEGMENTS_MAX: Final = 128  # file descriptors kept open for reading
SNAPSHOT_INFLIGHT_BYTES_MAX: Final = 8 << 20  # bytes of snapshots queued for writing; appends come in between
SNAPSHOT_REQUESTS_MAX: Final = 64  # groups asked for a snapshot by one step of collection
COLLECT_READ_BYTES_MIN: Final = 4 << 20  # bytes looked through by one step of collection: about 2 ms
COLLECT_REST_STEPS: Final = 20  # steps a file is left alone for its copies and snapshots to become durable
SHARED_MEMBERSHIPS_MAX: Final = 4096  # different memberships kept to be shared by groups
ZERO_STEP_BYTES: Final = 1 << 20  # bytes zeroed ahead and synced at once: what is written beside waits 1 ms
CLUSTER_NAME_BYTES_MAX: Final = 255  # bytes of UTF-8; fits the segment header

# Formation, and what a member that fell far behind fetches (transport/, node/).
FORMED_TEXT_CHARS_MAX: Final = 4096  # characters of a stream's metadata; gRPC takes 8 KiB in all
FOUNDING_LISTEN_S: Final = 0.75  # seconds that an empty node listens before it founds: members call every RECONNECT_DELAY_S_MAX
FOUNDING_LISTEN_S_MAX: Final = 60.0  # seconds that it may be told to; a start waits so long
FORMATION_LOG_S: Final = 10.0  # seconds between two log lines of a node that waits for its peers
BULK_CHUNK_BYTES: Final = 256 << 10  # bytes of a snapshot or of entries sent in one piece
BULK_LIVE_STEPS: Final = 64 << 10  # live indexes in one piece: at most 640 KiB
BULK_RANGES_MAX: Final = 4096  # runs of entries asked for in one call
BULK_STREAMS_MAX: Final = 8  # calls served at a time; each holds one snapshot, or one piece
BULK_SILENCE_S_MAX: Final = 30.0  # seconds between two pieces, after which a fetch is given up
SMALL_SNAPSHOT_BYTES_MAX: Final = 16 << 10  # bytes of a snapshot that is fetched with others, and likewise of its entries: an idle queue's has some hundred; a peer that sends more is refused, so raise it in two releases
SMALL_SNAPSHOTS_MAX: Final = 64  # small snapshots of one call, at most 2 MiB; a node makes one call a peer at a time
SMALL_STREAMS_MAX: Final = 16  # calls for small snapshots served at a time, each with one piece in memory; other nodes make one each
SMALL_PART_S_MAX: Final = 1.0  # seconds after which a call sends what it has, so that it is not taken for silent
SNAPSHOT_STATE_BYTES_MAX: Final = 1 << 30  # bytes of state taken from a peer
SNAPSHOT_LIVE_MAX: Final = 256 << 20  # live indexes taken from a peer, 8 bytes each
SNAPSHOT_EVERY_BYTES: Final = 16 << 20  # bytes of entries applied between two snapshots of a group, at least
SNAPSHOT_GROWTH: Final = 4  # times the last snapshot's size, likewise: writing them stays a fraction
SNAPSHOT_WAIT_FACTOR: Final = 4  # times that, until which a leader spares members that still need entries
SNAPSHOT_SLOW_S: Final = 0.1  # seconds from which the log tells of a snapshot: it is taken on the event loop, and a heartbeat is due as often
SNAPSHOTS_PER_TICK: Final = 4  # taken between two ticks, however large; each runs on the event loop
SNAPSHOT_BYTES_PER_TICK: Final = 256 << 10  # bytes up to which more of them are taken, so that many small groups do not wait for each other: 64 of a queue that is nearly empty, some 3 ms
SNAPSHOT_COST_BYTES: Final = 4 << 10  # bytes that each is reckoned at besides its state
SNAPSHOT_OUTRUN_FACTOR: Final = SNAPSHOTS_PER_TICK  # times the least distance of snapshots, applied since the last tick
COLLECT_SPARE_FILES: Final = 2  # files of dead bytes besides what collection is bound to: 128 MiB, some ten seconds of a busy node
COLLECT_SPARE_FILES_MAX: Final = 1024  # likewise; a disk has an end
COLLECT_BYTES_PER_TICK: Final = 1 << 20  # bytes of old log files read and moved between two ticks
FETCHES_MAX: Final = 4  # snapshots fetched at a time; each is in memory as a whole
FETCH_REST_TICKS: Final = 2  # between a fetch that failed and the next of that group; doubled with each failure, for whatever is wrong mostly stays so
FETCH_REST_TICKS_MAX: Final = 512  # ticks that a group rests at most, half a minute or so; leaders offer again at each heartbeat
FETCH_ATTEMPTS_MAX: Final = 16  # newer snapshots begun in one fetch; then the next offer is waited for
REBUILD_WAIT_S: Final = 30.0  # seconds in which a peer must say that the cluster works, for a damaged log to be set aside
REBUILD_ASK_S: Final = 2.0  # seconds one peer has to answer that
MEND_LOG_S: Final = 30.0  # seconds between two log lines of a group whose damaged entries nobody has
MEND_ROUND_TICKS: Final = 10  # ticks between two rounds of asking peers for the damaged entries of a group
MEND_ENTRIES_MAX: Final = 256  # damaged entries of a group asked for in one round; each is in memory until durable
DIGEST_ROUND_S: Final = 5.0  # seconds between two rounds of comparing states of groups that a node leads
DIGEST_EVERY_S: Final = 60.0  # seconds between two comparisons of a group, at least, unless a member may have restarted
DIGEST_COST_FACTOR: Final = 1000  # times what a digest took, until the leader has the next one taken: it costs 0.1 % of a core
DIGEST_GROUPS_MAX: Final = 128  # groups compared in one round
DIGEST_WAIT_S: Final = 1.0  # seconds between two requests for digests that were not there yet
DIGEST_REQUESTS_MAX: Final = 3  # requests to a peer in one round; who has no digest then is not compared
DIGEST_CONFIRMATIONS: Final = 2  # comparisons in a row that must show a difference before anything is done about it
DIGESTS_KEPT: Final = 4  # digests of a group that a member keeps
DIGEST_VERSION_BYTES_MAX: Final = 255  # of the version of a digest on the wire
DIGEST_BYTES_MAX: Final = 64  # of a digest on the wire
JOIN_TICKS: Final = 10  # ticks between two requests of one group to be admitted
JOINS_PER_TICK: Final = 256  # groups that ask to be admitted in one tick
LEADERLESS_JOIN_TIMEOUTS: Final = 5  # election timeouts without a leader, after which a member asks as well
RECONCILED_PER_TICK: Final = 64  # led groups whose membership is checked in one tick
DRAIN_TRANSFERS_MAX: Final = 64  # groups handed over at a time
DRAIN_S: Final = 10.0  # seconds after which a drain ends with what is left
READ_BARRIER_S: Final = 5.0  # seconds a read waits for a leader that a majority confirms
READ_TIMEOUTS: Final = 10  # election timeouts until a follower gives up a question to its leader: on a slow link an answer takes some
