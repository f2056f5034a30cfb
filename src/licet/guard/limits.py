"""The limits of calls, of what they record, and of what their handles hold."""

# Time
TICK = 0.05  # seconds between two checks of the deadlines of calls: how late one may be noticed
WALL_SECONDS = 30  # seconds that a call may take, if the manifest states no limit
AVAILABILITY_SECONDS = 2.0  # seconds; for the availability check of a tool, when a list of tools is made
FREEZE_LOOK_SECONDS = 0.3  # seconds; between two looks whether what runs was frozen by another process
STORE_SECONDS = 10.0  # seconds; the longest wait for a store outside of a call, as in `licet approvals`
GIVE_UP_EARLY = 0.1  # seconds before the deadline of a call when its stores give up, so that the reason names the wait
STORE_GRACE = 0.5  # seconds for a store to give up by itself, and to report what it waited for
CLOSING_SECONDS = 2.0  # seconds for the stores after a tool has ended, even if the time of its call is up
END_SECONDS = 5.0  # seconds that the end of a session waits for the calls that it has cancelled
END_PAUSE = 0.005  # seconds between two looks at these calls

# Calls and their results
FIRST_LOOK = 0.02  # seconds until a call looks again whether the first call of its id has ended; each is twice as long
LONGEST_LOOK = 0.5  # seconds between two such looks
LONGEST_CALL_ID = 128  # characters of the id that a caller gives a call
CONCURRENT_CALLS = 64  # calls that `call_many` runs at once, unless it is told otherwise
LONGEST_TOOL_NAME = 128  # characters of the name of a tool; a call of a longer one is recorded without a name
SHOWN_TOOL_NAME = 200  # characters of a tool's name in a receipt, since a model may write any name
OUTPUT_KB = 1024  # KiB of the result of a tool, if the manifest states no limit
LONG_RESULT = 64 << 10  # bytes of a result; the receipt of a longer one is made in a thread
PARSED_BEYOND = 1 << 20  # bytes of a long text that are parsed beyond twice its limit, to find secrets that are cut
MOST_OF_AN_ERROR = 1000  # characters of the text of a tool's error
LONGEST_ERROR = 100_000  # characters of an error that are read at all
MOST_FRAMES = 10_000  # frames of a traceback that are searched for the line that raised
MOST_OF_LOGS = 48 << 10  # bytes of what a tool printed
MOST_DIRECTORIES = 3  # directories that one message names
MOST_LINKS = 40  # links that one path may lead through, as in the kernel

# What sessions remember of results
MEMORIES_KEPT = 64  # sessions of a gate whose results are remembered although nobody holds them now
SESSIONS_NOTED = 100_000  # sessions that stay tainted when their memory is dropped; beyond, each new one begins so
LEAVES_COUNTED = 2000  # leaves of one result that a receipt counts by label
LONG_ARGUMENTS = 64 << 10  # bytes of arguments; where longer ones come from is asked in a thread
LEAST_OF_A_VALUE = 64  # bytes that each value in them counts at least
POINTERS_LISTED = 20  # pointers of untrusted leaves in one receipt
MOST_UNMET = 50  # rules that were not met, and arguments that met theirs, in one receipt
UNMET_SHOWN = 10  # rules that were not met that a person is shown
PLACES_SHOWN = 5  # places where one value stands that a person is shown

# What a call records
GRANTED = 8 << 20  # bytes of granted checks that one call records; more are only counted
REFUSED = 4 << 20  # bytes of refused checks that one call records
KEYS_SENT_AWAY = 256 << 10  # bytes of attempts to send a key away that one call records when that quota is used up
ASKED = 2 << 20  # bytes of questions to people that one call records
LEAST_OF_A_GRANT = 2 << 10  # bytes that a granted check or a question counts at least: about 4000 and 1000 of them fit
LEAST_OF_A_REFUSAL = 4 << 10  # bytes that a refused check counts at least: about 1000 of them fit
PROGRESS_SECONDS = 0.2  # seconds between two entries that one running call writes before its receipt
MANY_EVENTS = 200  # events; a receipt with more is made in a thread
MOST_TEXTS = 64  # rules of each list of kernel rules in a receipt
MOST_CHARACTERS = 8192  # characters of each list of kernel rules in a receipt
MOST_PROGRAMS = 8  # different sets of kernel rules around programs in one receipt
MOST_HELD_PATHS = 1000  # grants whose paths are kept ready
MOST_OF_A_CLAIM = 200  # characters of each text of a coding agent about a call of its own
MOST_EXIT_CODES = 100  # exit codes of programs in one receipt

# What the host holds for a call, if the manifest states no limit
HOST_MEMORY_MB = 64  # MiB of memory
HOST_FILES = 64  # open files
WRITTEN_PATHS = 10_000  # paths that a call writes, and files and directories that it makes itself
WAITING_KB = 4096  # KiB that wait for a tool to read them
REQUEST_HEADERS = 256  # header lines of one request

# Handles
READ_LIMIT = 10 << 20  # bytes that `ctx.fs.read` returns, unless it is told otherwise
INLINE_BYTES = 1 << 20  # bytes; reading or writing more of a file is done in a thread
FIRST_READ = 1 << 16  # bytes of the first read of a file
DEEPEST_MADE = 64  # nested directories that one call of `ctx.fs.mkdir` makes
OUTPUT_BYTES = 1 << 20  # bytes of each output of a program, if the manifest states no limit
FILES_OF_A_RUN = 8  # open files of the host while a program runs: its pipes, and sockets to its supervisor
FILES_OF_A_START = 4  # open files of the host while a program that stays connected starts
MOST_ADDRESSES = 4  # addresses of a host that are tried, one after the other
BODY_BLOCK = 1 << 20  # bytes; smaller pieces of a body are joined
DRAINED = 16 * 1024  # bytes of a redirect's body that are read, so that its connection can be reused
REDACTION_GROWTH = 64 * 1024  # bytes that redaction may add to a body
MOST_HEADER_BYTES = 256 << 10  # bytes of all headers of a request; servers accept far less
COMPRESSED_STEP = 64 * 1024  # compressed bytes of a body that are unpacked in one step
UNPACKED_STEP = 256 * 1024  # bytes that one step unpacks at most
LARGEST_VALUE = 1 << 20  # bytes of JSON of one stored value
MOST_UNITS = 125_000  # units of parsing work of one stored value, each about 50 ns
MOST_KEYS = 50_000  # keys of a store in one list
