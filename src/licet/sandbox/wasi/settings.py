"""How wasmtime is set up, the same where a module is compiled and where it runs. Imports wasmtime: for workers only."""

import wasmtime

STACK_BYTES = 2 << 20  # of one guest, the most that wasmtime gives without more: deeper recursion traps
TABLE_ELEMENTS = 200_000  # of each table: large programs have some ten thousand functions
_MOST_PARTS = 100  # instances, tables and memories of one component, each; a core module has one memory


def new_engine() -> wasmtime.Engine:
    """An engine that counts fuel and can be interrupted. Threads and shared memory stay off: a guest has one thread."""
    config = wasmtime.Config()
    config.consume_fuel = True
    config.epoch_interruption = True
    config.max_wasm_stack = STACK_BYTES
    config.wasm_threads = False
    config.wasm_multi_memory = False
    config.wasm_gc = False  # its heap would be a second memory besides the one that is limited
    config.cranelift_opt_level = "speed"
    return wasmtime.Engine(config)


def new_store(engine: wasmtime.Engine, *, fuel: int, memory_bytes: int) -> wasmtime.Store:
    """A store for one call, with its limits. It traps at the next tick of the engine's epoch."""
    store = wasmtime.Store(engine)
    store.set_fuel(fuel)
    store.set_epoch_deadline(1)
    store.set_limits(
        memory_size=memory_bytes,
        table_elements=TABLE_ELEMENTS,
        instances=_MOST_PARTS,
        tables=_MOST_PARTS,
        memories=_MOST_PARTS,
    )
    return store
