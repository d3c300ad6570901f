"""Every bound of the broker: one line each, with unit and reason."""

from __future__ import annotations

from typing import Final

MESSAGE_BYTES_MAX: Final = 16 << 20  # octets of one body; as RabbitMQ 4: larger ones belong in a store
FRAME_BYTES_MAX: Final = 131072  # octets of a frame incl. its 8 of envelope; what clients ask for by default
CHANNELS_MAX: Final = 2047  # open channels per connection; RabbitMQ's default
PIPELINE_COMMANDS: Final = 2  # unanswered publish (and settle) commands of a session before more gather
COMMAND_OCTETS_MAX: Final = 512 << 10  # octets gathered into one ENQUEUE, of more than one message; what a small log takes
ENTRY_OVERHEAD_OCTETS: Final = 256 << 10  # in a log entry beside one body: its properties (a frame at most) and heads
SETTLE_ITEMS_MAX: Final = 16384  # ranges in one SETTLE; some 340 KiB
SESSION_OCTETS_MAX: Final = 4 << 20  # octets a session holds for its queue before its reader pauses
DELIVERY_WINDOW_OCTETS: Final = 1 << 20  # octets sent to a consumer's gateway and not yet written
REQUEST_SECONDS_MAX: Final = 30  # wait for a queue's answer; clients give up at about a minute
PARTIAL_CONTENT_BYTES_MAX: Final = 256 << 20  # unfinished contents per connection; 16 of the largest
TABLE_DEPTH_MAX: Final = 16  # tables and arrays within each other; x-death needs 3
TABLE_FIELDS_MAX: Final = 1024  # of a method or property block; time to decode is quadratic
ANSWERS_KEPT_MAX: Final = 8  # answers a queue keeps per session for repeated commands
REFUSALS_KEPT_MAX: Final = 8  # ranges of refused publishes remembered per session; twice what is unanswered
EXPIRE_MESSAGES_MAX: Final = 4096  # messages that one TICK expires or makes available; some 2 ms
FRAME_BYTES_MIN: Final = 4096  # octets; AMQP's frame-min-size, smaller tune values are refused
HEARTBEAT_SECONDS: Final = 60  # proposed in connection.tune; RabbitMQ's default
HANDSHAKE_SECONDS_MAX: Final = 10  # from accept to connection.open-ok; RabbitMQ's default
CLOSE_SECONDS_MAX: Final = 5  # wait for close-ok and for the last octets to leave; then the socket goes
CONNECTIONS_MAX: Final = 16384  # client connections per listener; each costs some 20 KiB
LISTEN_BACKLOG: Final = 1024  # sockets that wait to be accepted; a thousand clients that come back at once
CHANNEL_COMMANDS_MAX: Final = 256  # waiting behind a channel's operation before the socket is not read
CHANNEL_LINKS_MAX: Final = 256  # queues a channel keeps a session with though it has nothing under way there
CHANNEL_CONSUMERS_MAX: Final = 4096  # consumers per channel
PREFETCH_UNLIMITED: Final = (
    65535  # deliveries; what prefetch 0 means: the most that a client can ask for
)
TX_OPERATIONS_MAX: Final = 16384  # publishes and settled ranges of a transaction; as many as one SETTLE takes
TX_EXTRA_OCTETS: Final = 192 << 10  # octets of a transaction beyond the largest body: with its head and properties a message fits, and all of it fits a log entry
CONSUMER_TIMEOUT_MS_MAX: Final = 315_360_000_000  # of x-consumer-timeout; ten years, as good as never
PREFETCH_UNLIMITED: Final = 65535  # deliveries; what prefetch 0 means: the most that a client can ask for
OUTPUT_FLUSH_BYTES: Final = 256 << 10  # octets gathered before they are written within a loop turn
OUTPUT_DELIVERY_BYTES_MAX: Final = 1 << 20  # octets the socket has not taken before deliveries are kept back
OUTPUT_RESUME_BYTES: Final = 256 << 10  # octets left when deliveries go on
OUTPUT_BYTES_MAX: Final = 4 << 20  # the same with replies and confirms, before the socket is not read
NAME_OCTETS_MAX: Final = 255  # octets of a name in the catalog; what a short string can carry
REPLICAS_MAX: Final = 7  # replicas of a queue; more cost a write each and tolerate failures nobody has
CATALOG_COMMAND_OCTETS_MAX: Final = 256 << 10  # octets of a catalog command; twice the largest AMQP method
CATALOG_REQUESTS_MAX: Final = 256  # catalog changes under way per node; more of them wait for their turn
CATALOG_REQUEST_WINDOW: Final = 1024  # request numbers remembered per node; four times what can be under way
ROUTES_CACHED_MAX: Final = 65536  # routes remembered per node; about 20 MiB of routing keys and tuples
PASSWORDS_REMEMBERED_MAX: Final = 1024  # verified passwords (as keyed hashes); users that connect often
REPLICAS_DEFAULT: Final = 3  # of a quorum queue; survives the loss of one node
PATTERN_OCTETS_MAX: Final = (
    1024  # octets of a regular expression in a policy or permission; four of the longest names
)
PROPERTIES_OCTETS_MAX: Final = FRAME_BYTES_MAX - 20  # octets of a property block; with the rest of a content header it fills a frame
DEATHS_KEPT_MAX: Final = 64  # deaths in x-death; some 70 KiB with the longest names, which fit a frame
PATTERN_OCTETS_MAX: Final = 1024  # octets of a regular expression in a policy or permission; four of the longest names
PATTERNS_CACHED_MAX: Final = 4096  # compiled expressions remembered; about a KiB each
PERMISSIONS_CACHED_MAX: Final = 65536  # answers remembered about who may do what; about 200 octets each
TTL_MS_MAX: Final = 315_360_000_000  # milliseconds of a message's or queue's time to live: ten years, as RabbitMQ
DURATION_MS_MAX: Final = 1 << 53  # milliseconds of a timeout or delay; added to a time it stays within 64 bits
QUANTITY_MAX: Final = (1 << 63) - 1  # messages or octets of a length limit; what a long integer can carry
PRIORITY_MAX: Final = 255  # of x-max-priority; what the property can carry, as RabbitMQ
DEDUPLICATION_SIZE_MAX: Final = 1 << 20  # identifiers a queue remembers; some 100 MiB of them
PROPERTIES_OCTETS_MAX: Final = FRAME_BYTES_MAX - 20  # octets of a property block; with the rest of a content header it fills a frame
DEATHS_KEPT_MAX: Final = 64  # deaths in x-death; some 70 KiB with the longest names, which fit a frame
ANSWER_OCTETS_MAX: Final = 1 << 20  # octets of rows in one node's answer to another; the rest is asked for again, a larger row left out
LISTING_ROWS_MAX: Final = 100_000  # rows of a listing of connections, channels or consumers; some 50 MiB
QUESTIONS_MAX: Final = 256  # questions to other nodes under way; HTTP requests that list or close at once
HASH_WEIGHT_MAX: Final = 1_000_000  # weight of a binding to a consistent-hash exchange; shares are finer than anybody tunes
REPLY_PROBE_SECONDS_MAX: Final = 5  # wait for another node's word on a direct reply-to consumer; links beat faster
CONSUMER_TIMEOUT_MS: Final = 1_800_000  # a delivery may stay unsettled so long where nothing else is said; RabbitMQ's default
DELIVERY_LIMIT: Final = 20  # failed deliveries of a replicated queue's message where nothing else is said; RabbitMQ's default
DEDUPLICATION_SIZE: Final = 65536  # identifiers a queue remembers where nothing else is said; some 6 MiB
TIMER_STEP_MS: Final = 100  # milliseconds by which a queue may be late: what is due within a step is done at once
TIMER_WAKES_MAX: Final = 256  # queues seen to within one turn of the loop, some milliseconds; the others follow in the next
DEAD_LETTER_OCTETS_MAX: Final = 32 << 20  # octets on their way to dead letter exchanges at most once, per node; more are dropped
DEAD_LETTER_KEPT_OCTETS_MAX: Final = 16 << 20  # the same at least once, per node; more wait in their queues
DEAD_LETTERS_IN_FLIGHT_MAX: Final = 256  # of one queue at least once; RabbitMQ has 32
DEAD_LETTER_SESSIONS_MAX: Final = 1024  # queues a node keeps a session with for dead letters though nothing is under way there
TICK_HELD_MS_MAX: Final = 10_000  # milliseconds for which what is due waits for dead letters to leave; then some are dropped
HASH_WEIGHT_MAX: Final = 1_000_000  # weight of a binding to a consistent-hash exchange; shares are finer than anybody tunes
REPLY_PROBE_SECONDS_MAX: Final = 5  # wait for another node's word on a direct reply-to consumer; links beat faster
SELECTOR_CHARACTERS_MAX: Final = 4096  # characters of a consumer's selector; as RabbitMQ's SQL filters
SELECTOR_DEPTH_MAX: Final = 32  # parentheses, signs and NOTs within each other in a selector
SELECTOR_NODES_MAX: Final = 512  # names, literals and operators of a filter; bounds the time for one message
LIKE_CHARACTERS_MAX: Final = 8192  # characters of a text that LIKE looks at; longer ones are not LIKE anything
FILTER_STEP_MESSAGES: Final = 512  # messages put to filters within one loop turn and queue; some milliseconds
FILTER_STEP_OCTETS: Final = 2 << 20  # octets of log entries read for that; the one that exceeds it is the last
FILTER_STEP_MS: Final = 5  # milliseconds after which the rest waits for the next loop turn: costly conditions
FILTER_ACQUIRE_MAX: Final = 1024  # messages in one ACQUIRE, and found by a filter and not acquired; 8 KiB
FILTER_RETURNED_MAX: Final = 65536  # messages that came back and wait for a filter; with more it starts over
FILTERS_IDLE_MAX: Final = 16  # filters without a consumer whose place a queue remembers, for clients that come and go
BROWSED_MESSAGES_MAX: Final = 500  # messages in one page of a queue; more than people read
BROWSED_OCTETS_MAX: Final = 1 << 20  # octets of properties and bodies in a page, but for its first message
BROWSED_READ_OCTETS_MAX: Final = 8 << 20  # octets of log entries read for a page; some milliseconds of the loop
BROWSED_BODY_OCTETS: Final = 50000  # octets of a body shown unless asked otherwise; what RabbitMQ's page asks for
MOVED_MESSAGES_MAX: Final = 1000  # messages named in one request to move or remove
MOVED_OCTETS_MAX: Final = 4 << 20  # octets of bodies taken out of a queue to be moved at a time, and one message
FETCHED_MESSAGES_MAX: Final = 1000  # messages in one request to get; they are held until all are read
FETCHED_OCTETS_MAX: Final = 32 << 20  # octets of bodies in the answer to get, and one message
