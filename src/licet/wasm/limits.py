"""The limits of a guest: those that only wasmtime has, and those that its worker enforces. Imports no wasmtime."""

from licet.core.decision.request import Reason

# One call
FUEL = 100_000_000_000  # units; where the manifest states none: about a minute of a processor
STACK_BYTES = 2 << 20  # bytes; the stack of a guest, the most that wasmtime gives without more: deeper recursion traps
TABLE_ELEMENTS = 200_000  # elements; each table: large programs have some ten thousand functions
MOST_PARTS = 100  # parts; instances, tables and memories of one component, each; a core module has one memory
OWN_MEMORY = 256 << 20  # bytes; what the interpreter and wasmtime may use besides the memory of the guest
NEARLY_FULL = 7 / 8  # times; the memory of a guest, with which in use one that fails needed more
TICK = 0.02  # seconds; between two looks at the CPU time of a call: each ends an epoch of wasmtime
CLOCK_REST_SECONDS = 1.0  # seconds; without a call, after which nobody looks
LAST_WORDS = 1 << 14  # bytes; the standard error of a guest that is kept for the text of an error

# Compiling
COMPILE_SECONDS = 120  # seconds; compiling a module: ordinary ones take less than one
COMPILE_MEMORY = 2 << 30  # bytes; compiling a module
OWN_COMPILE_SECONDS = 600  # seconds; compiling the Python of licet, which takes 15 on a machine that is not busy
OWN_COMPILE_MEMORY = 4 << 30  # bytes; compiling the Python of licet, which is large
COMPILER_FILES = 64  # files; those that the compiler may have open
LARGEST_CODE = 1 << 30  # bytes; the code of one compiled module
COPIED_AT_ONCE = 1 << 20  # bytes; what is read at once of code that is copied
LARGEST_NOTE = 64 << 20  # bytes; the note beside compiled code: a module can have many names
COMPILED_AT_ONCE = 2  # modules; those that are compiled at once
LOOK_SECONDS = 0.05  # seconds; between two looks at whether a module is compiled
MOST_INVALID = 512  # modules; those that are remembered because they cannot be compiled
LONGEST_NAME = 80  # characters; a name from a module in a text
MOST_NAMED = 3  # imports; those that a refusal names: the others are counted

# The Python of `licet.tools.python`
BUILD_PROCESSOR_SECONDS = 21  # seconds; of a processor, which a build usually needs: a busy machine needs no more
BUILD_SECONDS = 900  # seconds; one build
BUILD_SPACE = 200 << 20  # bytes; the disk for the component, twice, and for what is unpacked meanwhile

# Those that its worker reports itself: wasmtime enforces them there.
REPORTED: tuple[Reason, ...] = ("LIMIT_FUEL", "LIMIT_STACK", "LIMIT_CPU", "LIMIT_MEMORY", "LIMIT_OUTPUT")
