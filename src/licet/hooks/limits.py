"""What bounds hooks of coding agents, and the resident with its clients. It imports nothing: clients read it."""

# A hook
PAYLOAD_BYTES = 8 << 20  # bytes; the payload of an event: one that is longer is refused
HOOK_SECONDS = 10.0  # seconds; a hook in all, from the start of its client: after that it is a refusal
PRINTED_BYTES = 16 << 20  # bytes; what a hook prints

# The client of a resident
START_SECONDS = 3.0  # seconds; a resident comes up that was started on demand: without it the client works alone
FIRST_PAUSE_SECONDS = 0.005  # seconds; before a client looks again for the resident; each further pause is longer
LONGEST_PAUSE_SECONDS = 0.05  # seconds; the longest of these pauses

# Messages between a client and the resident
WORD_BYTES = 256  # bytes; the name of an agent or an event, or a ticket
PATH_BYTES = 4096  # bytes; a current directory
LINE_BYTES = 1 << 18  # bytes; a shell line: a single argument of a command is at most half as long
VALUES_BYTES = 1 << 20  # bytes; the values of all variables that a policy names
MOST_VARIABLES = 1_000  # variables; those whose values are asked of a client
REASON_BYTES = 4096  # bytes; why the resident refuses

# The resident
MOST_CLIENTS = 256  # clients; those at once: any further one works alone
HELD_BYTES = 64 << 20  # bytes; what is kept of all requests that are incomplete or under way: then clients work alone
READ_BYTES = 1 << 18  # bytes; what is read at once, so that one client cannot keep others waiting
ACCEPTED_AT_ONCE = 64  # clients; those that are accepted before others get a turn
BACKLOG = 1024  # clients; those that wait to be accepted
REQUEST_SECONDS = 5.0  # seconds; a client sends its request, answers a question, or reads its answer
MOST_SIGNALS = 64  # signals; those for one line that wait: further ones are dropped
IDLE_SECONDS = 900.0  # seconds; without a session or a line, after which the resident ends
LOOK_SECONDS = 15.0  # seconds; between two looks at whether it is idle, and whether its socket and files are the same
FILES_SECONDS = 1.0  # seconds; between two looks at the files of licet while requests come
MOST_OPEN_FILES = 8192  # files; those that the resident may have open, if its user may have so many
LOG_BYTES = 256 << 10  # bytes; the log of one resident; the next one begins anew

# Sessions of agents, and what is decided
INSTALLED_SECONDS = 30  # seconds; the time-out that `licet hooks install` sets in the agent's settings
LIST_BYTES = 4 << 20  # bytes; the list of projects and policies
MOST_SESSIONS = 2000  # sessions; those that are kept: the oldest are removed first
RECENT_SECONDS = 86400.0  # seconds; since its last event, in which a session is kept however many there are
SESSION_DAYS = 30  # days; without an event, after which a session is forgotten
SESSION_IDLE_SECONDS = 3600.0  # seconds; without an event, after which a session keeps no resident in memory
MOST_OPEN_CALLS = 1000  # calls; those of one session that are under way
UNKNOWN_AFTER_SECONDS = 3600.0  # seconds; a call whose end nobody has reported by then is closed as unknown
UPKEEP_SECONDS = 1.0  # seconds; one look for calls and sessions that have no end: what is left waits for the next one
UPKEEP_EVERY_SECONDS = 600.0  # seconds; between two of these looks by a resident; the start of a session looks too
REASON_CHARACTERS = 2000  # characters; a refusal that a model is shown
MOST_GATES = 50  # gates; those that a process keeps between events
MOST_PARENTS = 8  # processes; those between a hook and its agent that are looked at
WORDS_BYTES = 1 << 20  # bytes; the command line of an agent: with a longer one, no prompt counts as typed

# Shell lines
MOST_READY = 2  # supervisors; those that a resident starts ahead
TICKET_SECONDS = 300.0  # seconds; from the decision about a line to its start: a person may be asked in between
MOST_TICKETS = 1000  # tickets; those of one user that are kept, used ones too: the oldest are removed first
MOST_TICKET_BYTES = 1 << 20  # bytes; one ticket
LONGEST_LINE = 100_000  # bytes; a rewritten line: the kernel takes no argument of more than 128 KiB
MOST_STATE_BYTES = 16 << 20  # bytes; what a shell keeps for the next line
SCRATCH_LOOK_SECONDS = 0.5  # seconds; between two looks at a session's scratch, and at least 20 times one look
REFUSALS_SHOWN = 5  # refusals; those of the proxy that are told at the end of a line

# What `licet hooks` asks of agents
VERSION_SECONDS = 10.0  # seconds; an agent says its version
APP_SERVER_SECONDS = 15.0  # seconds; everything that is asked of Codex
APP_SERVER_BYTES = 16 << 20  # bytes; the longest line that Codex answers with
CANARY_SECONDS = 20.0  # seconds; one agent refuses a harmless call
INSTALL_SECONDS = 30.0  # seconds; one `licet hooks` waits for another one to end

# What configures an agent
MOST_SEARCHED = 20_000  # directories; those that are searched for it when a line ends: outer ones first
MOST_MOVED = 100  # paths; those that are renamed at the end of one line: the others are told
MOST_LINKS = 2_000  # entries; those of a directory that configures agents in which links are looked for
