"""What walls, workers and programs are bounded by. Launchers inside walls read it too, so it imports nothing."""

# Workers
PARKED_OF_ONE_TOOL = 2  # workers; those of one tool that are started ahead of time
MOST_PARKED = 32  # workers; those of all tools that are started ahead of time
MOST_PREPARED = 512  # kinds of call; those that are prepared
EXIT_SECONDS = 10.0  # seconds; learning how a worker ended, which takes long on a very busy machine only
LARGEST_LINE_NUMBER = 10_000_000  # lines; the line of an error that a worker names: a larger number is not believed
ERRAND_EXIT_SECONDS = 2.0  # seconds; learning how a worker ended that does something for licet itself
ZYGOTE_SECONDS = 5.0  # seconds; the process that workers come from takes a message: after that it counts as dead
RUNNING_LOOK_SECONDS = 0.1  # seconds; between two looks at what workers use that run a call
WAITING_LOOK_SECONDS = 1.0  # seconds; between two looks at what workers use that wait for one
MOST_PRINTED = 64 << 10  # bytes; what is kept of what a worker prints: as much as a pipe holds
WORKER_BUFFER = 1 << 20  # bytes; the buffer of the socket to a worker, and what is read of why none could be started
THREAD_STACK = 2 << 20  # bytes; each thread of a worker: the default is four times that, and counts as memory
MOST_FRAMES = 50  # frames; those of a traceback that a worker prints
MEMORY_RESERVE = 1 << 20  # bytes; what a worker frees to report that its memory is used up
LONGEST_ERROR = 20_000  # characters; the text of an error from a worker: the host shows fewer, without secrets
MOST_SCRATCH_ENTRIES = 20_000  # entries; what is counted in a scratch directory: more exceed every limit
MOST_KNOWN_HOSTS = 1 << 20  # bytes; a list of host keys, which programs see a copy of
MOST_UNSEEN = 1 << 20  # bytes; the list of what git leaves out of a repository, for it to be shown with more names
MOST_SESSION_ENTRIES = (
    500_000  # entries; the same for the scratch of a session of an agent: caches of packages lie there
)
SESSION_SCRATCH_SECONDS = 3 * 86_400.0  # seconds; the scratch of a session that runs no line for so long is removed

# Questions of a worker
MOST_OPEN_QUESTIONS = 32  # questions; those of one call that wait for an answer
MOST_ASKED_AT_ONCE = 16  # questions; those that an honest worker asks at once
MOST_REFUSALS = 64  # refusals; those of one call that are known again if the tool lets one through
MEMORY_OF_A_HEAD = 4  # times; its length in bytes, which a question takes in memory
MOST_RUNNING = 16  # programs; those of one call that run at once, started by a library
MOST_PIECES = 32  # pieces; those of one stream that are asked for and not sent
LARGEST_NUMBER = 10**15  # units; the largest number that is sent as a limit: above every limit of the host
MOST_SENT_HEADERS = 4096  # headers; those of one request that are sent: the host refuses more

# Messages between host and worker
DEEPEST_HEAD = 100  # levels; JSON inside JSON, in the head of a message
SHORT_READ = 1 << 14  # bytes; what is read at once
LONG_READ = 1 << 18  # bytes; what is read at once in the middle of a long message
MOST_SENT_FILES = 4  # files; those of one message
RESULT_BYTES = 16 << 20  # bytes; the result of a tool: one longer than `limits.output_kb` is cut
LARGEST_QUESTION = 4 << 20  # bytes; the head of a question: the arguments of a command may be long
LARGEST_SENT_BLOB = 32 << 20  # bytes; the content that a worker sends with a question
MOST_HEAD_UNITS = 50_000  # units; parsing the head of a question, where a value of a list is one unit
LARGEST_ANSWER = 16 << 20  # bytes; the head of an answer
LARGEST_ANSWERED_BLOB = 300 << 20  # bytes; the content of an answer: a response of `ctx.fetch` may be large
NAMES_AT_ONCE = 100  # names; those of a list that are written in one step
MOST_UNREAD = 32  # answers; those that a worker leaves unread, if they are also many bytes or files
ANSWER_OVERHEAD = 1 << 10  # bytes; what each answer counts besides its content
SENT_APART = 1 << 16  # bytes; the longest content that is copied behind its head
UNREAD_MESSAGE = 768  # bytes; what the kernel counts at least for an unread message
UNREAD_SECONDS = 0.005  # seconds; between two looks at whether a worker has read its files

# The network of programs
LARGEST_REQUEST_HEAD = 1 << 16  # bytes; the head of a request of a program
LARGEST_REQUEST_BODY = 32 << 20  # bytes; the body of a request of a program
MOST_CHUNKS = 1 << 17  # chunks; those of one body: each takes the same time, however short it is
CHUNKS_AT_ONCE = 64  # chunks; those that are read before other tasks run
CONNECT_SECONDS = 10.0  # seconds; connecting to one address: a silent one must not use up the time of the others
MOST_CONNECTIONS = 128  # connections; those of the programs of a call at once
MOST_REQUESTS = 10_000  # requests; those of the programs of a call: each leaves an event in memory
REQUEST_SECONDS = 30.0  # seconds; a program sends its request, and each wait after that
ACCEPT_SECONDS = 0.05  # seconds; until the next attempt to accept a connection when the quota is used up
BODY_COPIES = 2  # copies; those of a body that are in memory while its buffer grows
CONNECTION_FILES = 2  # files; one connection: from the program, and to the server
ANSWER_SECONDS = 600.0  # seconds; the next bytes of an inspected request, or of its answer: a model may think for long
IDLE_SECONDS = 300.0  # seconds; until the next request on an inspected connection
ENDED_SECONDS = 30.0  # seconds; the answer to a program that has ended its side: it may be gone, or read on
ADDRESS_SECONDS = 60.0  # seconds; until a name is looked up again for an inspected connection
LOOK_UP_SECONDS = 5.0  # seconds; all lookups of inspected hosts before a tunnel, and until those that fail are repeated
MOST_UNHEARD = 1 << 20  # bytes; those of a refused request that are read, so that its program hears why
UNHEARD_SECONDS = 2.0  # seconds; the same
MOST_DECODED = 1 << 30  # bytes; a compressed answer to a program whose keys may be in it
MOST_DISTRUSTFUL = 1_000  # hosts; those of a call whose certificates programs did not accept, and that are named
LARGEST_HELLO = 1 << 16  # bytes; the first message of TLS in a tunnel, which names its host
MOST_FOUND = 10_000  # addresses; those of inspected hosts of a call: no tunnel leads there without being named
LAUNCHER_BACKLOG = 128  # connections; those of programs that wait to be accepted

# Keys that programs never see
SHORTEST_KEY = 16  # characters; a secret with a stand-in: a shorter one could occur by chance
LONGEST_KEY = 4096  # characters; a secret with a stand-in
LEAST_RANDOM_BITS = 64  # bits; those of a stand-in that are random
FEWEST_SIGNS = 6  # characters; those of a secret that differ
UNREPEATED = 16  # characters; the first of a secret, which do not occur in it again: a search would take long
UNGUESSABLE = 64  # bits; the fewest random ones of a key that a text is compared with: a guess of fewer could be timed
MOST_WINDOWS = 256  # characters; those of a key that are searched for, before all of it is compared
LARGEST_KEY_FILE = 1 << 20  # bytes; a file that a secret is in
DEEPEST_KEY_FILE = 64  # levels; those of YAML that a secret is in, and parts of one key of TOML
LARGEST_KEYED_BODY = 1 << 20  # bytes; a body of a request in which a key is placed in a field
UNPACKED_FREELY = 1 << 20  # bytes; those that a compressed body may unpack to, however short it is
MOST_UNPACKED_TIMES = 128  # times; its length, to which a longer compressed body may unpack
LARGEST_UNPACKED_BODY = 1 << 30  # bytes; a compressed body of a request, unpacked
SEARCHED_AT_ONCE = 1 << 13  # bytes; those that are searched for one key before other tasks run
FEWEST_SEARCHED = 1 << 9  # bytes; the same, for any number of keys
HELD_BACK_SECONDS = 2.0  # seconds; bytes after an upgrade that may begin a key wait for those that follow
MOST_LEFT = 16  # places; those in one request with a stand-in that went on as it was

# Programs
SUPERVISOR_SECONDS = 10.0  # seconds; a supervisor clears up after the time of its program
SUPERVISOR_START_SECONDS = 60.0  # seconds; a supervisor takes its command, or ends
MOST_SUPERVISOR_FILES = 8  # files; those that come with a command
LONGEST_POLL = 3600.0  # seconds; one wait: the kernel takes no more milliseconds than fit into 31 bits
LONGEST_LAUNCH_REPORT = 1 << 16  # bytes; what a launcher says about its walls
LAUNCHER_SECONDS = 2.0  # seconds; a launcher ends after its program
MOST_LINK_ENTRIES = 100_000  # entries; the trees in /usr that are searched for links to /etc
LARGEST_LINK_CACHE = 4 << 20  # bytes; the file with what that search found
MOST_CONFIGURATION = 2_000  # entries; those of one directory in /etc that is shown to programs
MOST_PROGRAM_ENTRIES = 20_000  # entries; a path that a program may use, searched for named pipes
LARGEST_ORDERS = 64 << 20  # bytes; the orders to a launcher
PROGRAM_LOOK_SECONDS = 0.1  # seconds; between two looks at what a program uses
MEASURED_AT_ONCE = 64  # processes; those whose memory is looked at each time
FREEZE_SECONDS = 5.0  # seconds; all processes of a program stop, or the program ends
CLOSE_SECONDS = 10.0  # seconds; files that were replaced are closed again, and the program stands still meanwhile
QUIET_SECONDS = 0.2  # seconds; nothing happens beside a missing name, before a placeholder is made
LONGEST_QUIET_SECONDS = 2.0  # seconds; the same, however much happens
BUSY_QUIET_SECONDS = 0.2  # seconds; without a change, before a program whose files are replaced often goes on
MOST_REPLACED = 5  # times in `CLOSE_SECONDS`; files replaced more often count as often
NAME_PAUSE_SECONDS = 0.005  # seconds; between two looks at what happens to names, while much happens
MOST_EXPOSED_ENTRIES = 20_000  # entries; a directory that was exposed, searched for second names
LONGEST_REASON = 1 << 12  # bytes; why the walls ended a program
LONGEST_ENDING = 1 << 15  # bytes; why the walls ended a program, and the deletes that they refused: half of a pipe
MOST_REFUSED_DELETES = 20  # paths; those of refused deletes of a program that are named: the others are counted
LONGEST_REFUSED_DELETES = 4 << 10  # characters; these paths together: JSON has up to six bytes for each
COPY_SECONDS = 2.0  # seconds; a copy of a stream ends when its program has ended
AWAKE_SECONDS = 0.2  # seconds; between two moments in which a signal is noticed
STOP_LOOK_SECONDS = 0.02  # seconds; between two looks at whether a program at a terminal has stopped, when it may soon
LAST_OUTPUT = 1 << 14  # bytes; the last output that is kept, to say which wall a failed program hit
CHUNK = 1 << 16  # bytes; what is read at once from a stream: as much as a pipe holds
MOST_UNWRITTEN = 1 << 18  # bytes; what waits to be written to a stream before its writer waits

# Trust inside HTTPS
AUTHORITY_SECONDS = 3_650 * 86_400.0  # seconds; the certificate of the authority of a run, which ends before
LEAF_SECONDS = 86_400.0  # seconds; the certificate that a program meets for a host
LEAF_RENEWAL_SECONDS = 43_200.0  # seconds; the same, until it is made anew
CLOCK_SECONDS = 300.0  # seconds; before it is made, a certificate is valid already
MOST_LEAVES = 256  # hosts; those whose certificates are kept: the one that was asked for least recently goes
LARGEST_BUNDLE = 4 << 20  # bytes; one file of trusted certificates: those of systems have 200 to 500 KB
MOST_TRUSTED_ENTRIES = 4096  # entries; a directory of trusted certificates

# Caches of policies
CACHE_BYTES = 4 << 30  # bytes; a cache that holds more is emptied before the next run
MOST_CACHE_ENTRIES = 500_000  # entries; the same
CACHE_LOOK_SECONDS = 3_600.0  # seconds; from one look at its size to the next
LARGEST_CACHE_NOTE = 16 << 10  # bytes; the note that says which policy a cache belongs to

# Kernel rules
MOST_GRANT_FILES = 100_000  # files; those of a grant that are searched for second names
MOST_CLOSED_FILES = 2_000_000  # files; those of closed trees that are searched
FEW_CLOSED_FILES = 2_000  # files; those of closed trees that are searched before the grant is: they cost less
MOST_REMEMBERED = 64  # searches of closed trees whose outcome is kept on disk
REMEMBERED_SECONDS = 86_400.0  # seconds; how long it counts
LARGEST_MEMORY = 16 << 20  # bytes; the outcome of one search on disk
CHANGE_SECONDS = 2.0  # seconds; a file that has changed within them may change again within one tick of its clock
MOST_RULES = 3_000  # rules; those of one process: more would block the event loop for each new worker
ADDRESSES = 4  # times; its memory, which a process may reserve in addresses
PROCESS_STACK = 8 << 20  # bytes; the stack of a process behind walls
LOCKED_MEMORY = 64 << 10  # bytes; the memory that a process behind walls may lock
MOST_JUDGES = 32  # threads; those that answer system calls of a program
MOST_KNOWN_SOCKETS = 512  # files; those of listening sockets that are remembered
MOST_SEARCHED_FILES = 100_000  # files; those of processes that are looked at for one listening socket
SHARED_CONNECT_SECONDS = 5.0  # seconds; a connection on the loopback is made for a program
JUDGE_STACK = 256 << 10  # bytes; the stack of each of these threads
LONGEST_ADDRESS = 128  # bytes; the address of a socket
ATTEMPT_SECONDS = 30  # seconds; all attempts at the walls of this machine
ATTEMPT_FILES = 32  # files; those that an attempt may have open
PROBE_SECONDS = 60  # seconds; the process that tests the walls of this machine

# `licet learn`
LONGEST_PATH = 4096  # bytes; a path, with the NUL at its end
MOST_INTERPRETERS = 4  # interpreters; those that one script leads to
GUARDIAN_BACKLOG = 128  # connections; those of an observed command that wait to be accepted
LARGEST_COMMAND = 1 << 16  # bytes; the command that is observed
LEFT_RUNNING_SECONDS = 1.0  # seconds; between SIGTERM and SIGKILL for processes that the command left running
ACTS_AT_ONCE = 64  # calls; those of a command that are answered before other tasks run
FLUSH_SECONDS = 0.25  # seconds; until what was observed is written
MOST_NAMED = 20  # names; those of one kind of note
MOST_OBSERVED_REQUESTS = 1 << 40  # requests; those of an observed command: as many as it makes
