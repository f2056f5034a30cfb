"""The limits of the backends: sizes, counts and times."""

# HTTP.
MOST_HEAD_BYTES = 128 << 10  # bytes; of an answer before its body, with all interim answers; `ctx.fetch` takes fewer
SMALL_READ_BYTES = 2 << 10  # bytes; that are read at once where each of them may cost time: most heads are shorter
LARGE_READ_BYTES = 64 << 10  # bytes; that are read at once after an upgrade
MOST_HEAD_LINES = 1_000  # lines; before a body, with interim answers: real answers have fewer than a hundred
MOST_INTERIM_ANSWERS = 32  # status lines; before a body: real servers send one or two interim answers
SLICE_SECONDS = 0.001  # seconds; of work on one answer: a call needs many turns of the loop, and may wait at each
REST_SECONDS = 0.002  # seconds; that work on one answer rests after a slice
RESOLVE_SECONDS = 10.0  # seconds; to look up the name of a host
CONNECT_SECONDS = 10.0  # seconds; for each address, so that a silent one leaves time for those after it
KEEP_ALIVE_SECONDS = 30.0  # seconds; that a connection is kept for a next request
MOST_IDLE = 64  # connections; that are kept for next requests
MOST_LOOKUPS = 64  # threads; that look up names of hosts
MOST_LOOKUPS_OF_ONE = 8  # threads; for the look-ups of one owner, with those that no call waits for any more

# Storage.
LARGEST_KEY = 512  # bytes; of one key
LARGEST_SCOPE = 64 << 20  # bytes; of keys, values and the overhead of each entry in one scope
PER_ENTRY = 64  # bytes; of overhead of each entry; it limits the number of keys with empty values
MOST_OBJECTS = 1000  # objects; of the schema of a file that are read: licet's have about ten
LONGEST_OBJECT_NAME = 60  # characters; of the name of such an object, in messages
FIRST_PAUSE = 0.0005  # seconds; between the first two attempts at a busy file; each pause is twice as long
LONGEST_PAUSE = 0.05  # seconds; between two attempts at a busy file
FORK_SECONDS = 10.0  # seconds; that a fork waits for a transaction
TURN_SECONDS = 0.1  # seconds; that a thread which a fork has refused has to try again, before the next fork
FLUSHES_A_CHECKPOINT = 200  # flushes; after which the log is copied into the database, or it would grow for ever
CHECKPOINT_SECONDS = 0.05  # seconds; that a checkpoint waits for other threads of this process
MOST_WRITES = 512  # writes; in one transaction
WRITE_SECONDS = 0.05  # seconds; that one attempt to write waits for other threads of this process

# Freezes.
LOOK_AT_FREEZES_SECONDS = 1.0  # seconds; that a look waits for other threads of this process
MOST_LOOKS_AT_ONCE = 1000  # calls; whose freezes one statement looks up
MOST_OPERATORS_BYTES = 65_536  # bytes; of the file with the pinned keys of operators
# Calls with an id.
KEPT_SECONDS = 24 * 3600  # seconds; that what became of such a call is kept
SWEPT_AT_ONCE = 100  # calls; that are forgotten when another one begins

ALIVE_SECONDS = 15.0  # seconds; after which the end of a call is unknown whose node no longer says that it runs
MOST_BEGUN = 64  # calls with an id; that begin in one statement
SWEEP_PAUSE = 10.0  # seconds; between two looks of a node for results whose time is over
CLOCKS_APART = 3600  # seconds; that the clocks of two nodes may differ before a kept result counts as an old one

# PostgreSQL.
MOST_CONNECTIONS = 8  # connections; of one process to one database, beside the one that listens
CONNECT_TO_SERVER_SECONDS = 3.0  # seconds; to make one connection, so that another host of the address has a turn
FIRST_RETRY = 0.02  # seconds; before a request is sent again after a lost connection; each pause is twice as long
LONGEST_RETRY = 0.5  # seconds; between two attempts
MOST_READS = 256  # values; of a key-value store that are read in one batch
HEAR_SECONDS = 2.0  # seconds; in which a node hears its own notification, or polls from then on
POLL_SECONDS = 0.5  # seconds; between two looks where notifications do not arrive
READ_AT_ONCE = 100  # rows; of the ledger that a reader fetches at once
READ_SECONDS = 120.0  # seconds; for one portion of what a reader reads
LONGEST_ENTRY = 256 << 20  # bytes; of an entry that is read: none is longer
SEARCHED_UNENDED = 100_000  # entries; of which those without a receipt are searched: takes some tenths of a second
SEARCHED_MEANWHILE = 1_000  # entries; recorded after a time that may be of calls before it
BATCHES_KNOWN = 1_000  # batches; whose signature was checked and is remembered while a ledger is verified
MOVE_SECONDS = 86_400.0  # seconds; for a ledger to move to another state
MOVED_AT_ONCE = 500  # entries; that are written at once when a ledger moves
CLOSE_SECONDS = 5.0  # seconds; for the last answers when a state is closed
INIT_SECONDS = 120.0  # seconds; to make the tables, while another process may do the same
STATUS_SECONDS = 30.0  # seconds; to look at a database and at all of its servers
MOST_CLAIMS = 512  # claims; that one request sets aside, or ends
MOST_COMPARED = 10_000  # agents and days; whose budgets a process knows to be as the ledger says
MOST_OPENED = 256  # calls; that one request opens
MOST_LEASED_CALLS = 10_000  # calls; in one block of a budget
LEASE_SECONDS = 30.0  # seconds; after which others may end a block whose process renews it no more
IDLE_LEASE_SECONDS = 10.0  # seconds; after which an unused block is given back
FORGET_RESERVATIONS_SECONDS = 3600.0  # seconds; that what has ended is known, so that it is not done again
HEARTBEAT_SECONDS = 5.0  # seconds; between two checks that the connection which listens is alive
LOOK_AGAIN_SECONDS = 5.0  # seconds; after which who waits for an answer looks for it, although none was notified
MOST_TURNS = 20  # attempts; to find, use or store a request for approval while other nodes do the same
STANDING_SECONDS = 2.0  # seconds; that what the stores said of standing approvals is used before it is read again
SIGNATURES_KEPT = 4096  # signatures; of rows that were checked and are not checked again
OLDEST_STEP = 1  # steps; that a database may be behind, or ahead of, this version
MOST_APPENDED = 512  # entries; in one batch of a node
MOST_TAILS = 100_000  # sessions; whose ends a node remembers; of others it asks the database
CHECK_SECONDS = 1.0  # seconds; after which a node that writes looks at the newest head and at its enrolment again
ENROLLED_SECONDS = 2.0  # seconds; for which an enrolled node counts before the ledger is asked again
HASHES_AT_ONCE = 65_536  # hashes; of the tree that are read at once
PLACE_SECONDS = 0.1  # seconds; between two looks of the sequencer for entries without a place
STANDBY_SECONDS = 0.5  # seconds; after which another sequencer takes over, if entries wait and no head was signed
MOST_PLACED = 4096  # entries; that get their places in one transaction
MOST_WAITING = 100_000  # entries; that the sequencer remembers while they wait for one before them
MOST_HELD_BACK = 100  # entries; without a place that are listed
CLOCK_APART_SECONDS = 2.0  # seconds; between the clocks of a node and of the server, above which `doctor` warns
HEAD_AGE_SECONDS = 10.0  # seconds; of the newest head while entries wait, above which `doctor` warns: 50 of its turns
HELD_BACK_SECONDS = 1.0  # seconds; that a transaction is open, above which `doctor` names it
LAST_PLACES_SECONDS = 2.0  # seconds; for the last places and the last head when a ledger is closed

# Files.
MOST_NAMES = 50_000  # names; in one directory that are listed
SORTED_AT_ONCE = 4096  # names; that are sorted at once, before other work gets a turn
SHORT_PATH_BYTES = 3000  # bytes; of a directory's path below which every name in it can be opened
MOST_DENIES_KNOWN = 1000  # sets of denies; whose links and real paths are cached
OPEN_ATTEMPTS = 128  # attempts; to open a path while something is renamed
MOST_LINKS = 40  # links; on the way to a file, as on Linux

# Secrets and keys.
MOST_SECRETS_BYTES = 1 << 20  # bytes; of a file of secrets
MOST_KEY_BYTES = 65_536  # bytes; of a file with a signing key

# Approvals.
MOST_UNANSWERED = 100  # requests; of one session without an answer: nobody reads more
MOST_SHOWN_BYTES = 65_536  # bytes; of arguments: a person cannot agree to what they cannot read
MOST_EXPIRED = 100  # requests; of one session that expired and are still listed: a model can cause any number
FINISHED_MS = 7 * 24 * 3600 * 1000  # milliseconds; for which a finished request can still be listed
LOOK_SECONDS = 0.5  # seconds; between two looks into the store for an answer
LONGEST_ANSWER = 1024  # bytes; of an answer at the terminal
MOST_ASKED = 100  # questions; that an approver in memory keeps

# Revisions of a repository.
MOST_EXPORTED_FILES = 50_000  # files; of a revision that are exported
MOST_TREE_ENTRIES = 1_000_000  # files; of any kind in a revision: the largest public repositories have half as many
MOST_TREE_BYTES = 256 << 20  # bytes; of the list of files of a revision
DEEPEST_FILE = 100  # directories; around a file of a revision
LONGEST_TREE_PATH = 1 << 16  # bytes; of a path in a revision
MOST_EXPORTED_BYTES = 512 << 20  # bytes; of all files of a revision that are exported
LARGEST_FILE = 8 << 20  # bytes; of one file of a revision: no policy and no source that licet reads is as large
LARGEST_MODULE = 64 << 20  # bytes; of one WebAssembly module of a revision, as in a declaration
MOST_MODULES_BYTES = 256 << 20  # bytes; of all WebAssembly modules of a revision, also of those that are no tools
EXPORT_SECONDS = 60  # seconds; for git to export a revision
FIND_SECONDS = 10  # seconds; for git to find a revision by its name, which takes milliseconds
