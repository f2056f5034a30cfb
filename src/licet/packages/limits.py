"""What finding, installing and starting packages is bounded by: registries, archives and projects may be hostile."""

# npm and pip as programs
STEP_SECONDS = 0.1  # seconds; between two looks at the deadline while something is waited for
ASKING_SECONDS = 30.0  # seconds; asking an interpreter where it is
LARGEST_CLIENT_FILE = 1 << 30  # bytes; one file that npm or pip writes
MOST_CLIENT_BYTES = 16 << 30  # bytes; all that one run of npm or pip writes
MOST_NPM_BYTES = 2 << 30  # bytes; all that one run of npm writes: metadata, archives, and bundles
LARGEST_PIP_LOG = 64 << 20  # bytes; the log of pip
MOST_CLIENT_LINES = 12  # lines; what a message quotes of npm or pip
LARGEST_SETTINGS = 1 << 20  # bytes; one `.npmrc`, or one shim of a version manager

# Archives
CHUNK = 1 << 16  # bytes; what is unpacked at once
MOST_UNPACKED_BYTES = 4 << 30  # bytes; one package with all that it needs
MOST_UNPACKED_FILES = 200_000  # files; one package with all that it needs
FREE_UNPACKED_BYTES = 64 << 20  # bytes; what one archive may unpack to, whatever its size
MOST_UNPACKED_TIMES = 30  # times; its own size, which an archive may unpack to beyond that: text reaches 10
LONGEST_MEMBER_NAME = 1000  # bytes; the name of a file in an archive
LONGEST_MEMBER_PART = 255  # bytes; one part of such a name
LONGEST_HEADER = 1 << 20  # bytes; one header in an archive: Python reads the whole of it at once
LARGEST_WHEEL_TEXT = 1 << 20  # bytes; one `.pth` file, or list of programs, in a wheel
LARGEST_WHEEL_METADATA = 8 << 20  # bytes; the metadata of one wheel

# Choosing versions
MOST_ROUNDS = 10_000  # rounds; choosing versions that fit together
MOST_LEVELS = 20  # levels; how often wheels are fetched to learn what they need
MOST_CAUSES = 6  # requirements; those that a message names if no versions fit together
LONGEST_NPM_NAME = 214  # characters; the name of a package of npm

# What is installed
LARGEST_RECORD = 32 << 20  # bytes; the RECORD, or the METADATA, of one distribution that a tool comes from
LARGEST_METADATA = 64 << 20  # bytes; one file of metadata in the environment of a server
LARGEST_LOCKED_SOURCE = 64 << 20  # bytes; one source file that a lock has
MOST_CHANGES_NAMED = 5  # files; those that a message names of a distribution that was changed
MOST_DISTRIBUTIONS_NAMED = 3  # distributions; those without a RECORD that a message names

# What a server is started from
LARGEST_PYVENV = 64 << 10  # bytes; one `pyvenv.cfg`
LARGEST_SCRIPT = 1 << 20  # bytes; one script, or the module that an editable installation adds
MOST_VERSIONS = 100  # versions; those of one interpreter that a version manager has installed
MOST_SITE_ENTRIES = 20_000  # entries; one directory of distributions that is searched for links
MOST_PTH = 1_000  # files; `.pth` files in a directory, and lines in one of them
MOST_CODE_FILES = 20_000  # files; the directory that `code` of a server names
MOST_CODE_BYTES = 512 << 20  # bytes; all files in that directory
MOST_NODE_FILES = 500  # files; those that a script for Node imports by path
MOST_NODE_BYTES = 8 << 20  # bytes; all these files
LARGEST_PACKAGE_JSON = 1 << 20  # bytes; one `package.json` above them
MOST_NODE_LINKS = 1_000  # packages; those of one `node_modules` that are looked at, for links
