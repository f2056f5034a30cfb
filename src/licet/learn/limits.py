"""What reading recordings, and drafting a policy from them, is bounded by."""

# Recordings
LONGEST_LINE = 1 << 20  # bytes; one line of a recording
LONGEST_PROCESS_NAME = 15  # bytes; what the kernel keeps of the name of a process

# Looking around
MOST_SEARCHED = 200_000  # names; one directory that is searched for git repositories: a larger one may have some
DEEPEST_REPOSITORY = 100  # directories; how deep a git repository is looked for
MOST_LOOKED_AT = 20_000  # names; below the working directory, for what a draft should deny
DEEPEST_LOOKED_AT = 3  # directories; how deep these names are looked for

# A draft
MOST_OUTPUTS = 8  # directories; what a program makes in one before the rule is about that, as for a cache of hashes
MOST_BESIDE = 100  # files and directories; what is denied beside names that a program makes
MOST_SENSITIVE = 50  # comments; sensitive uses that one file lists; `--json` has them all
MOST_NAMED = 3  # files; those that one note names

# Labels of results
LEAST_OF_FIELD = 3  # values; a field with fewer, or fewer different texts, is not known well enough to be labelled
LONGEST_ID = 64  # characters; a longer string is text, as it is to flow itself
MOST_FIELDS = 200  # fields; a tool whose results have more has data for names
MOST_FIELDS_NAMED = 6  # fields; those that a comment names as untrusted
