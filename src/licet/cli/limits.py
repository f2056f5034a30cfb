"""The limits of the command line: what it reads, and how much of what it found it prints.

No limit here is about what a policy allows. `--json` has what is cut in a text, unless a line says otherwise.
"""

# What is read
PYTHON_FILES = 5_000  # files; what `licet init` without FILE looks at for tools and frameworks
PYTHON_FILE_BYTES = 2 << 20  # bytes; a larger Python file is not looked at by `licet init`
ARGUMENT_FILE_BYTES = 4 << 20  # bytes; a file for `licet call --args`. What one call takes is less
SCHEMA_FILE_BYTES = 1_000_000  # bytes; a file that `licet schema` may replace, many times the longest schema
OUTPUT_LINES_SEARCHED = 200  # lines; the end of what a command said, in which `licet run` looks for walls
OUTPUT_LINE_CHARACTERS = 4096  # characters; what is looked at of one such line
OUTPUT_ERRORS_SEARCHED = 4  # errors; those of one such line whose paths are looked for
OUTPUT_NAMES_SEARCHED = 8  # names; those of one such line that are in quotes
NAME_WORDS_SEARCHED = 16  # words; those of a name with spaces that is in no quotes
LEAST_SECRET_CHARACTERS = 6  # characters; a shorter variable is never taken for a secret by `licet observe`

# Times
OBSERVING_HOURS = 24  # hours; how long `licet gateway --observe` may let refused calls through
INTERRUPT_SECONDS = 2.0  # seconds; three Ctrl-C within them end `licet run`, and fewer belong to the command
BUILD_LINE_SECONDS = 15.0  # seconds; between two lines about a build of WASM, where there is no terminal

# What is printed
LOCK_CHANGES_SHOWN = 2_000  # lines; what a lock changes
UNENDED_CALLS_SHOWN = 20  # calls; those without a receipt that `licet receipts verify` names
COMMAND_CHARACTERS_SHOWN = 40  # characters; the command of a call in `licet receipts list`
ENTRY_NAME_CHARACTERS_SHOWN = 80  # characters; the name of a ledger entry that was changed
USES_SHOWN = 5  # uses; different ones below one line of `licet receipts list` and `summary`
USES_IN_JSON = 20  # uses; different ones of one day in `licet receipts summary --json`
ARGUMENT_CHARACTERS_SHOWN = 100  # characters; the arguments of a request in `licet approvals list`
TOOLS_SUGGESTED = 10  # tools; those that an error of `licet explain` lists
GROWTH_LINES_SHOWN = 8  # lines; what else a change would allow, in `licet explain`
FAILURE_REASONS_SHOWN = 10  # reasons; why `--fail-on` ends a command with 1
LEFT_OUT_PATHS_SHOWN = 5  # paths; files of a git revision that `licet diff` left out
HINT_LINES = 5  # lines; all that `licet run` says of the walls that a command met, and of refused connections
CLOSED_SHOWN = 3  # names in the line about what flags leave closed
NOTE_TARGETS_SHOWN = 5  # targets; what one note of `licet observe` names, also in JSON
LEARNED_ITEMS_SHOWN = 10  # items; each list in the report of `licet learn`
WASM_LINES_SHOWN = 40  # lines; each list of `licet wasm inspect`, since a module can have a million names
WASM_DECLARATION_LINES_SHOWN = 200  # lines; the declaration that `licet wasm inspect` proposes
REPORT_LINE_BYTES = 4000  # bytes; one line of a gateway to its operator, less than a page of memory
