"""The limits of a guest: those that only wasmtime has, and those that its worker enforces. Imports no wasmtime."""

from licet.core.decision.request import Reason

FUEL = 100_000_000_000  # where the manifest states none: about a minute of a processor
STACK_BYTES = 2 << 20  # of one guest, the most that wasmtime gives without more: deeper recursion traps
TABLE_ELEMENTS = 200_000  # of each table: large programs have some ten thousand functions
MOST_PARTS = 100  # instances, tables and memories of one component, each; a core module has one memory
OWN_MEMORY = 256 << 20  # bytes that the interpreter and wasmtime may use besides the memory of the guest
TICK = 0.02  # seconds between two looks at the CPU time of a call; each ends an epoch of wasmtime

# Those that its worker reports itself: wasmtime enforces them there.
REPORTED: tuple[Reason, ...] = ("LIMIT_FUEL", "LIMIT_STACK", "LIMIT_CPU", "LIMIT_MEMORY", "LIMIT_OUTPUT")
