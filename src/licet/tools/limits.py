"""What one call of a ready-made tool is bounded by."""

# Files
MOST_TEXT = 256 << 10  # bytes; what one `read_file` returns
MOST_EDITED = 10 << 20  # bytes; a file that one `edit_file` reads or writes
MOST_REPLACED = 1000  # places; what one `edit_file` replaces
MOST_ENTRIES = 1000  # entries; what one `list_dir` returns

# Searches
MOST_MATCHES = 1000  # matches; what one `search_files` returns
MOST_PATHS = 50_000  # files and directories; what one search looks at
DEEPEST = 60  # directories; how deep a search goes
LARGEST_FILE = 4 << 20  # bytes; a file that is searched
LARGEST_IGNORE_FILE = 256 << 10  # bytes; one `.gitignore` or `.ignore`
MOST_RULES = 5000  # rules; those of ignore files that apply to one path
LONGEST_PATTERN = 500  # characters; the pattern of one search
LONGEST_GLOB = 1000  # characters; one pattern of names: longer ones match nothing
LONGEST_LINE = 300  # characters; a line as a match shows it
MOST_STEPS = 10_000_000  # steps; matching names in one search
MOST_STEPS_AT_ONCE = 300_000  # steps; matching the names of one path
MOST_TRIES = 20_000  # places; those in one file that may not be complete words
