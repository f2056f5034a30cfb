"""WASM modules for tests, from their text form: commands that use WASI and the host function."""

from collections.abc import Mapping, Sequence

from wasm_files import wasm

WASI = {
    "fd_write": "(param i32 i32 i32 i32) (result i32)",
    "fd_read": "(param i32 i32 i32 i32) (result i32)",
    "fd_prestat_get": "(param i32 i32) (result i32)",
    "path_open": "(param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)",
    "path_unlink_file": "(param i32 i32 i32) (result i32)",
    "environ_sizes_get": "(param i32 i32) (result i32)",
    "environ_get": "(param i32 i32) (result i32)",
    "poll_oneoff": "(param i32 i32 i32 i32) (result i32)",
    "random_get": "(param i32 i32) (result i32)",
    "proc_exit": "(param i32)",
    "sock_accept": "(param i32 i32 i32) (result i32)",
}
DATA, ANSWER = 1024, 65536  # where texts lie in the memory of a command, and where answers are put

# Writes a piece of memory to a stream; a number as decimal digits; the answer to an operation of the host function.
HELPERS = """
  (func $write (param $fd i32) (param $at i32) (param $size i32)
    (i32.store (i32.const 0) (local.get $at)) (i32.store (i32.const 4) (local.get $size))
    (drop (call $fd_write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))))
  (func $say (param $at i32) (param $size i32) (call $write (i32.const 1) (local.get $at) (local.get $size)))
  (func $say_number (param $n i32) (local $at i32)
    (local.set $at (i32.const 64))
    (loop $next
      (local.set $at (i32.sub (local.get $at) (i32.const 1)))
      (i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.rem_u (local.get $n) (i32.const 10))))
      (local.set $n (i32.div_u (local.get $n) (i32.const 10)))
      (br_if $next (local.get $n)))
    (call $say (local.get $at) (i32.sub (i32.const 64) (local.get $at))))
  (func $ask (param $op i32) (param $op_size i32) (param $args i32) (param $size i32) (result i32)
    (call $licet_call (local.get $op) (local.get $op_size) (local.get $args) (local.get $size))
    (drop (call $licet_take (i32.const 65536) (i32.const 65536))))
"""


class Texts:
    """Texts in the memory of a command, each as the two numbers that functions take: address and size."""

    def __init__(self) -> None:
        self._at, self._segments = DATA, [""]

    def __call__(self, text: str | bytes) -> str:
        data = text if isinstance(text, bytes) else text.encode()
        at, self._at = self._at, self._at + len(data)
        escaped = "".join(f"\\{byte:02x}" for byte in data)
        self._segments.append(f'(data (i32.const {at}) "{escaped}")')
        return f"(i32.const {at}) (i32.const {len(data)})"

    @property
    def segments(self) -> str:
        return " ".join(self._segments)


def command(body: str, texts: Texts | None = None, *, more: str = "", memory: str = "4") -> bytes:
    """A command whose `_start` has this body."""
    imports = "\n".join(
        f'(import "wasi_snapshot_preview1" "{name}" (func ${name} {type_}))' for name, type_ in WASI.items()
    )
    return wasm(
        f"""(module {imports}
        (import "licet" "call" (func $licet_call (param i32 i32 i32 i32) (result i32)))
        (import "licet" "take" (func $licet_take (param i32 i32) (result i32)))
        (memory (export "memory") {memory}) {texts.segments if texts else ""}
        {HELPERS} {more} (func (export "_start") (local $n i32) {body}))"""
    )


def asks(op: str, args: str) -> bytes:
    """A command that asks the host once, and says the answer."""
    texts = Texts()
    return command(
        f"""(local.set $n (call $ask {texts(op)} {texts(args)}))
        (if (i32.lt_s (local.get $n) (i32.const 0)) (then (local.set $n (i32.sub (i32.const 0) (local.get $n)))))
        (call $say (i32.const {ANSWER}) (local.get $n))""",
        texts,
    )


def opens(path: str | bytes, *, directory: int = 3, create: bool = False) -> bytes:
    """A command that opens a path below a directory that WASI has opened, and says the error number, then the text."""
    texts = Texts()
    flags = 1 if create else 0
    rights = "(i64.const 536870911)" if create else "(i64.const 2)"
    return command(
        f"""(local.set $n (call $path_open (i32.const {directory}) (i32.const 1) {texts(path)}
              (i32.const {flags}) {rights} (i64.const 0) (i32.const 0) (i32.const 512)))
        (call $say_number (local.get $n)) (call $say {texts(" ")})
        (if (i32.eqz (local.get $n)) (then
          (i32.store (i32.const 0) (i32.const {ANSWER})) (i32.store (i32.const 4) (i32.const 4096))
          (drop (call $fd_read (i32.load (i32.const 512)) (i32.const 0) (i32.const 1) (i32.const 8)))
          (call $say (i32.const {ANSWER}) (i32.load (i32.const 8)))))""",
        texts,
    )


def creates(names: Sequence[str]) -> bytes:
    """A command that makes files below the first directory that WASI has opened, and says each error number."""
    texts = Texts()
    body = " ".join(
        f"""(call $say_number (call $path_open (i32.const 3) (i32.const 1) {texts(name)}
          (i32.const 1) (i64.const 536870911) (i64.const 0) (i32.const 0) (i32.const 512)))
        (call $say {texts(" ")})"""
        for name in names
    )
    return command(body, texts)


ECHO = command(
    f"""(loop $more
      (i32.store (i32.const 0) (i32.const {ANSWER})) (i32.store (i32.const 4) (i32.const 4096))
      (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
      (local.set $n (i32.load (i32.const 8)))
      (call $say (i32.const {ANSWER}) (local.get $n))
      (br_if $more (local.get $n)))"""
)
ENVIRONMENT = command(
    f"""(drop (call $environ_sizes_get (i32.const 512) (i32.const 516)))
    (drop (call $environ_get (i32.const 2048) (i32.const {ANSWER})))
    (call $say (i32.const {ANSWER}) (i32.load (i32.const 516)))"""
)
RANDOM = command(
    f"(drop (call $random_get (i32.const {ANSWER}) (i32.const 4)))(call $say_number (i32.load (i32.const {ANSWER})))"
)
PREOPENED = command("(call $say_number (call $fd_prestat_get (i32.const 3) (i32.const 512)))")
# A subscription to the clock, in nanoseconds from now: 30 seconds.
SLEEP = command(
    """(i64.store (i32.const 536) (i64.const 30000000000))
    (i32.store (i32.const 528) (i32.const 1))
    (drop (call $poll_oneoff (i32.const 512) (i32.const 1024) (i32.const 1) (i32.const 2000)))"""
)
FLOOD = command(f"(loop (call $say (i32.const {ANSWER}) (i32.const 65536)) (br 0))")
# A module that is no command: it has to be initialized before its functions are called.
REACTOR = wasm(
    """(module (global $ready (mut i32) (i32.const 0))
    (func (export "_initialize") (global.set $ready (i32.const 7)))
    (func (export "ready") (result i32) (global.get $ready)))"""
)
COUNTER = wasm(
    """(module (global $n (mut i32) (i32.const 0)) (memory (export "memory") 1)
    (func (export "count") (result i32)
      (global.set $n (i32.add (global.get $n) (i32.const 1)))
      (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (global.get $n)))
      (i32.load (i32.const 0))))"""
)
ENDINGS: Mapping[str, tuple[str, str]] = {
    "loop": ("(loop br 0)", "LIMIT_FUEL"),
    "recurse": ("(call $self)", "LIMIT_STACK"),
    "grow": ("(loop (br_if 0 (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable", "LIMIT_MEMORY"),
    "trap": ("unreachable", "TOOL_FAILED"),
    "divide": ("(drop (i32.div_s (i32.const 1) (i32.const 0)))", "TOOL_FAILED"),
    "outside": ("(drop (i32.load (i32.const -8)))", "TOOL_FAILED"),
    "table": (
        "(if (i32.ne (table.grow (ref.null func) (i32.const 100000000)) (i32.const -1)) (then unreachable))",
        "",
    ),
}
WILD = wasm(
    '(module (memory (export "memory") 1) (table 1 funcref)'
    + "".join(
        f'(func {"$self" if name == "recurse" else ""} (export "{name}") {body})' for name, (body, _) in ENDINGS.items()
    )
    + '(func (export "add") (param i64 i64) (result i64) (i64.add (local.get 0) (local.get 1)))'
    + '(func (export "less") (param i64 i64) (result i64) (i64.sub (local.get 0) (local.get 1)))'
    + '(func (export "half") (param f64) (result f64) (f64.div (local.get 0) (f64.const 2))))'
)
