"""The limits of what servers and clients of MCP send: sizes, counts and times."""

# Messages of JSON-RPC.
MOST_LINE_BYTES = 32 << 20  # bytes; of one message
MOST_DEPTH = 100  # levels; of nesting in one message
MOST_UNITS = 1_000_000  # units of work; to parse one message, which are about 50 ms
MOST_DIGITS = 400  # digits; of one number: the largest that JavaScript can write has 309
MOST_ID = 1 << 53  # an integer; below it the id of a request is exact in JavaScript
LONGEST_ID = 256  # characters; of the id of a request

# The conversation with a server.
MOST_ANSWER_BYTES = 1 << 20  # bytes; of a request of a server, and of an answer unless its request says otherwise
MOST_NOTIFICATION_BYTES = 1 << 16  # bytes; of a notification of a server
MOST_ASKS = 32  # requests; of one server at once
MOST_BAD_LINES = 10_000  # lines; in a row that are no messages, before the server counts as gone
LONGEST_TEXT = 2_000  # characters; of a server's error or progress message
MOST_ERROR_DATA_BYTES = 1 << 16  # bytes; of the data of a server's error; more is left out
NOTIFICATIONS_AT_ONCE = 1_000  # notifications; of one server at once
NOTIFICATIONS_A_SECOND = 200  # notifications; of one server a second from then on
CANCEL_SECONDS = 5.0  # seconds; for a server to take a cancellation or a refusal
PROBE_SECONDS = 10.0  # seconds; for `server/discover`, as SDK 2.x waits: a server may ignore what it does not know
MOST_ROUNDS = 10  # rounds; of input that one call may need, as in all SDKs
MOST_INPUTS = 16  # requests; for input in one round
STATE_ONLY_PAUSES = (0.05, 0.1, 0.2, 0.25)  # seconds; before a call that only has to wait is repeated, as in SDK 2.x

# The definitions of a server.
MOST_PAGES = 100  # pages; of all lists of one server together
MOST_DEFINITIONS = 10_000  # definitions; of one server
MOST_LISTS_BYTES = 4 << 20  # bytes; of all lists of one server together
MOST_BROKEN_MARKS = 300_000  # quotes, brackets and commas; of a list that is read item by item, which are about 2 s
MOST_DEFINITION_BYTES = 256 << 10  # bytes; of one definition
LONGEST_NAME = 2_000  # characters; of the name or the URI of a definition
MOST_LEFT_OUT = 100  # definitions; that are left out with a reason of their own; more are counted
LONGEST_CURSOR = 10_000  # characters; of the cursor of a page
SETTLE_SECONDS = 0.3  # seconds; in which a server may say that its lists changed after all
MOST_TIMES = 5  # times; that lists which change are read
LIST_SECONDS = 60  # seconds; that a client may keep a list: the policy behind it can change
LONGEST_SHOWN_NAME = 64  # characters; of the name of a tool or a prompt that a model is shown
MOST_KEYS_NAMED = 10  # keys; of content that were left out, that a receipt names
MOST_CLASHES_NAMED = 5  # tools; that the reason of a clash of shown names has

# Locking a server.
LOCK_STARTS = 3  # starts; of a server while it is locked, which are compared
RESOLVE_SECONDS = 1800.0  # seconds; to choose the versions of a package, and to fetch it
LOCK_SECONDS = 60.0  # seconds; for a server to open, and again to list its definitions, while it is locked
ENDING_SECONDS = 2.0  # seconds; for a server that was locked to end by itself
LAST_LINES = 20  # lines; that a server wrote last: Node writes a dozen below the one that says what is wrong
LONGEST_LINE = 300  # characters; of a line that a server wrote, in advice about it
MOST_CAUSES = 3  # causes; that are named for a server that did not start

# The link to a server.
END_BYTES = 1 << 12  # bytes; that are kept at each end of a message that is too long
MOST_IN_A_ROW = 32  # lines; of one side that are read before other tasks get a turn
TURN_BYTES = 1 << 13  # bytes; that count as one line more when turns are shared
LONGEST_LOG_LINE = 2_000  # characters; of a line on a server's standard error that are shown
LOG_BUFFER_BYTES = 1 << 16  # bytes; of a line on a server's standard error that are kept until it ends
LOG_LINES_AT_ONCE = 200  # lines; on a server's standard error that are shown at once
LOG_LINES_A_SECOND = 20  # lines; on a server's standard error that are shown a second from then on
GRACE_SECONDS = 2.0  # seconds; for a server to end, or for a client to read the last messages

# The link to a remote server.
MOST_ERROR_BYTES = 1 << 16  # bytes; of the body of an answer with an error status
MOST_CALLS = 100  # requests; to one remote server at once; more wait
MOST_NOTES = 16  # notifications and answers; to one remote server at once, besides requests
NOTE_SECONDS = 30.0  # seconds; for a remote server to take a notification or an answer
CLOSE_SECONDS = 2.0  # seconds; to end the session with a remote server
DRAIN_SECONDS = 1.0  # seconds; for the rest of an answer, so that the connection can be used again
DRAIN_BYTES = 16 * 1024  # bytes; of the rest of an answer, so that the connection can be used again
SILENT_SECONDS = 86_400.0  # seconds; without any byte of an answer; the clock of a call ends it before
QUIET_SECONDS = 300.0  # seconds; without any byte on a stream of changes, which is then opened again
STREAM_PAUSES = (1.0, 2.0, 5.0, 15.0, 30.0)  # seconds; before each further opening of a stream of changes
LASTING_SECONDS = 60.0  # seconds; that a stream lasts until its pauses begin again, and changes may have been missed
MOST_RESUMED = 3  # times; in a row that a broken answer is continued without any event
HELD_MB = 64  # MiB; of messages that were not yet received, in all streams of one remote server
LONGEST_EVENT_ID = 1_000  # bytes; of the id of an event in a stream
SLICE_BYTES = 1 << 11  # bytes; of a stream that are split into lines at once
MOST_HEADER_BYTES = 32_768  # bytes; of the headers that repeat arguments: servers accept hardly more
