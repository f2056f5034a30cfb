"""What bounds the reading of policy files: a file may come from anybody."""

# One file
MOST_BYTES = 1 << 20  # bytes; one policy file, and data given as policy, roughly as JSON
DEEPEST = 32  # levels of lists and mappings in one policy file
MOST_VALUES = 200_000  # keys, values and collections in one policy file: each takes half a kilobyte
MOST_ALIASED = 1000  # values that the aliases of one file repeat
MOST_PROBLEMS = 1000  # problems of the syntax of one file that are reported
LARGEST_INT = (1 << 53) - 1  # largest whole number in a policy file: readers that store doubles change a larger one
MOST_POINTERS = 16 << 20  # characters of all JSON pointers of policy that is given as data

# Hints and messages. The search for similar words is slow: a hostile file must not use much time
MOST_HINTED_PROBLEMS = 100  # problems of one file after which no similar word is searched
MOST_WORDS_COMPARED = 20_000  # words that one file's misspelt words are compared with, times its problems
MOST_KEYS_LOOKED_AT = 20  # first keys of a file that tell whether it is policy at all
LONGEST_SHOWN = 200  # characters of a message about a rule on arguments
MOST_APPS_NAMED = 20  # apps of a workspace that one message lists

# Rules on arguments
MOST_PATTERNS = 500  # different patterns in the argument rules of one file: each takes up to 10 ms to compile
LONGEST_PATTERNS = 1 << 16  # characters of all rules with patterns: compiling takes a hundred times that in memory

# Inspection
MOST_INSPECTED = 1000  # hosts of one list under `inspect`
MOST_STAND_INS = 100  # keys of one list of stand-ins: each is searched in all that a program sends

# Flow
MOST_LABELS_OF_TOOL = 16  # entries for one tool under `flow.results`: two policies have an entry for each pair
MOST_SOURCES = 200  # rules of one list under `flow`
MOST_WORDS = 200  # words of one `asked_by`

# Servers and tools
LONGEST_TOOL_NAME = 128  # characters of the full name of a server's tool, `SERVER.TOOL`
MOST_MODULES = 1000  # different modules under `from`: each is searched in several directories, and closed
MOST_EXACT = 1 << 53  # size in the definition of a resource: larger integers are not exact in JavaScript

# Policy files that are searched, to close them for writing. After so many bytes, every further file counts as policy,
# so that a directory full of large files does not make each load slow.
MOST_READ = 64 << 20  # bytes that are read to tell which files are policy
MOST_PARSED = 1 << 20  # bytes that are parsed to tell which files are policy
DEEPEST_PARSED = 32  # levels of a file that is parsed to tell whether it is policy; the loader has the same limit
MOST_LOOKED_AT = 1_000  # candidates in one directory; if there are more, all of them count as policy
MOST_SEARCHED = 100_000  # names below directories that are searched for policy
MOST_LISTED = 10_000  # files of a directory that are closed one by one; if there are more, the directory is closed
MOST_FOUND = 1_000  # policies below the paths to write: each is closed to a program by several mounts
MOST_LOOKED_THROUGH = (
    500_000  # names below those to write that are searched for the next, in a second; then they are closed
)
MOST_TRUSTED_PATHS = 1_000  # paths below those to write that other programs run or trust, and that are closed
MOST_SECRET_FILES = 100  # files of a project that a new policy closes since they hold secrets by custom
MOST_INCLUDED = 100  # files that the configuration of one repository of git includes, and that are closed
LONGEST_GIT_SETTING = 1_000  # characters; a setting of git that is shown to programs
LONGEST_GIT_FILE = 4 << 10  # bytes; a `.git` file, and others of git that hold one path
MOST_OF_INDEX = 256 << 20  # bytes; the index of one repository of git: a million files take about 100 MiB
MOST_FOLLOWED = 100  # policies below the paths to write whose code is closed, too
MOST_STEPS = 200  # directories and links on the way to the organisation file

# Changes of policy while a process runs
SETTLED_SECONDS = 0.1  # seconds; a file that is newer may change again without another time: clocks of kernels tick
