"""Links: lines over the pipes of a process, and over the standard streams of this one, whatever they are."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from licet.guard.redaction.redact import BLOCK, Redactor
from licet.mcp.jsonrpc import failed_answer
from licet.mcp.limits import MOST_LINE_BYTES
from licet.mcp.link import Flood, Gone, Lines, LogLines, PipeLink
from licet.sandbox.streams import ThreadedSink, ThreadedSource, pipe_source, shared_sink, shared_source

from .servers import linked

SHELL = ["/bin/sh", "-c"]


def sh(script: str) -> list[str]:
    return [*SHELL, f"PATH=/usr/bin:/bin; {script}"]


# Lines ----------------------------------------------------------------------------------------------------------------


class Chunks:
    """A source that gives its chunks one after another."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = list(chunks)

    async def read(self) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""

    def close(self) -> None:
        self._chunks.clear()


LINES: list[tuple[tuple[bytes, ...], list[bytes]]] = [
    ((), []),
    ((b"a\n",), [b"a"]),
    ((b"a\nb\nc\n",), [b"a", b"b", b"c"]),
    ((b"a", b"b", b"\n", b"c\n"), [b"ab", b"c"]),
    ((b"\n\n  \na\r\n\t\n",), [b"a\r"]),
    ((b"a\nunfinished",), [b"a"]),
    ((b"1234567890\n",), [b"1234567890"]),
]


async def all_lines(source: Any, most: int = 10) -> list[bytes]:
    lines = Lines(source, most)
    found = []
    while line := await lines.receive():
        found.append(line)
    return found


@pytest.mark.parametrize(("chunks", "expected"), LINES)
def test_lines_are_found_however_their_bytes_come(chunks: tuple[bytes, ...], expected: list[bytes]) -> None:
    assert asyncio.run(all_lines(Chunks(*chunks))) == expected
    alone = tuple(bytes([byte]) for chunk in chunks for byte in chunk)
    assert asyncio.run(all_lines(Chunks(*alone))) == expected


@pytest.mark.parametrize("chunks", [(b"12345678901\n",), (b"1234567890", b"1"), (b"a\n12345678901",)])
def test_a_line_that_is_too_long_is_a_flood(chunks: tuple[bytes, ...]) -> None:
    with pytest.raises(Flood, match="a line of more than 10 bytes"):
        asyncio.run(all_lines(Chunks(*chunks)))


def test_other_tasks_run_while_many_lines_come() -> None:
    async def scene() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        await all_lines(Chunks(b"x\n" * 3_200))
        task.cancel()
        return turns

    assert asyncio.run(scene()) == 100


# Pipes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 65_536, 5_000_000])
def test_lines_go_to_a_process_and_back(size: int) -> None:
    async def scene() -> bytes:
        async with linked(["/bin/cat"]) as (link, _):
            sending = asyncio.create_task(link.send(b"x" * size + b"\n"))
            line = await link.receive()
            await sending
            return line

    assert asyncio.run(scene()) == b"x" * size


def test_a_line_is_sent_whole_even_if_its_sender_is_cancelled() -> None:
    async def scene() -> list[bytes]:
        async with linked(["/bin/cat"]) as (link, _):
            tasks = [asyncio.create_task(link.send(bytes([65 + n]) * 500_000 + b"\n")) for n in range(5)]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            last = asyncio.create_task(link.send(b"end\n"))  # waits until the others are read
            lines = []
            while (line := await link.receive()) != b"end":
                lines.append(line)
            await last
            return lines

    lines = asyncio.run(scene())
    assert lines
    assert all(line == line[:1] * 500_000 for line in lines)


def test_a_process_that_floods_has_to_wait() -> None:
    async def scene() -> int:
        async with linked(sh("yes"), grace=0.01) as (link, _):
            await link.receive()
            await asyncio.sleep(0.1)
            return len(link._lines._buffer)

    assert asyncio.run(scene()) <= 1 << 16


def test_a_line_without_end_is_a_flood() -> None:
    async def scene() -> None:
        async with linked(sh(f"head -c {MOST_LINE_BYTES + 100_000} /dev/zero"), grace=0.01) as (link, _):
            await link.receive()

    with pytest.raises(Flood):
        asyncio.run(scene())


def test_a_process_that_has_ended_gives_no_lines_and_takes_none() -> None:
    async def scene() -> bytes:
        async with linked(sh("exec 0<&-; echo a; exit 0")) as (link, process):
            assert await link.receive() == b"a"
            end = await link.receive()
            process.wait()
            with pytest.raises(Gone):
                await link.send(b"x\n")
            return end

    assert asyncio.run(scene()) == b""


def test_a_process_gets_time_to_end_by_itself(tmp_path: Path) -> None:
    async def scene() -> None:
        script = f"cat >/dev/null; echo late; echo late >&2; echo done >{tmp_path}/done"
        async with linked(sh(script)) as (link, _):
            await link.send(b"x\n")

    asyncio.run(scene())
    assert (tmp_path / "done").read_text() == "done\n"


def test_a_process_that_does_not_end_is_not_waited_for_long() -> None:
    async def scene() -> None:
        async with linked(sh("yes & yes >&2 & exec sleep 1000"), grace=0.05):
            pass

    asyncio.run(asyncio.wait_for(scene(), 30))


def test_closing_twice_and_closing_while_someone_sends_is_fine() -> None:
    async def scene() -> BaseException | None:
        async with linked(sh("exec sleep 1000"), grace=0.01) as (link, _):
            await link.send(b"x" * 3_000_000)
            stuck = asyncio.create_task(link.send(b"y\n"))
            await asyncio.sleep(0)
            await link.close()
            await link.close()
            assert await link.receive() == b""
            return (await asyncio.gather(stuck, return_exceptions=True))[0]

    assert isinstance(asyncio.run(scene()), Gone)


def hiding(secret: str = "hunter2") -> Redactor:
    redactor = Redactor()
    redactor.add("TOKEN", secret)
    return redactor


# What a server writes, and what is left of it.
REDACTED = [
    ("error hunter2", "error [redacted TOKEN]"),
    ('{"text":"hunter2"}', '{"text":"[redacted TOKEN]"}'),
    ("nothing", "nothing"),
]


@pytest.mark.parametrize(("line", "clean"), REDACTED)
def test_secrets_are_taken_out_of_every_line_also_on_stderr(line: str, clean: str) -> None:
    logged: list[str] = []

    async def scene() -> bytes:
        script = sh(f"echo '{line}' >&2; echo '{line}'")
        async with linked(script, redactor=hiding(), log=logged.append) as (link, _):
            return await link.receive()

    assert asyncio.run(scene()) == clean.encode()
    assert logged == [clean]


def test_other_tasks_run_while_secrets_are_searched_in_a_long_line() -> None:
    blocks = 10

    async def scene() -> int:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with linked(sh("read end"), redactor=hiding()) as (link, _):
            link._lines = Long(blocks * BLOCK)  # type: ignore[assignment] # a line that is there at once
            task = asyncio.create_task(others())
            await link.receive()
            task.cancel()
            return turns

    assert asyncio.run(scene()) >= blocks - 1


class Long:
    def __init__(self, size: int) -> None:
        self.size = size

    async def receive(self) -> bytes:
        return b"\\" * self.size


def test_the_part_of_a_log_line_that_is_shown_has_no_half_of_a_secret() -> None:
    told: list[str] = []
    log = LogLines(told.append, hiding("hunter2-and-more"))
    log.feed(b"x" * 1_995 + b"hunter2-and-more\n")
    [line] = told
    assert "hunter" not in line
    assert line.endswith(" …")


# Logs -----------------------------------------------------------------------------------------------------------------


def feed(*chunks: bytes, clock: Callable[[], float] = lambda: 0.0) -> list[str]:
    told: list[str] = []

    async def scene() -> None:
        await LogLines(told.append, clock=clock).drain(Chunks(*chunks))

    asyncio.run(scene())
    return told


def test_log_lines_are_cut() -> None:
    assert feed(b"a\r\n\n", b"b\xff", b"c\nlast") == ["a", "b�c", "last"]
    [long] = feed(b"x" * 10_000_000 + b"\n")
    assert long == "x" * 2_000 + " …"


def test_a_flood_of_log_lines_is_dropped_and_counted() -> None:
    told = feed(b"x\n" * 1_000)
    assert told == ["x"] * 200 + ["… 800 lines dropped"]


def test_log_lines_come_again_after_a_while() -> None:
    now = [0.0]
    told: list[str] = []
    log = LogLines(told.append, clock=lambda: now[0])
    log.feed(b"x\n" * 300)
    now[0] = 0.5
    log.feed(b"y\n" * 20)
    assert told == ["x"] * 200 + ["… 100 lines dropped"] + ["y"] * 10


def test_a_process_that_fills_stderr_is_not_stopped_by_it() -> None:
    async def scene() -> bytes:
        async with linked(sh("head -c 3000000 /dev/zero >&2; echo done")) as (link, _):
            return await link.receive()

    assert asyncio.run(scene()) == b"done"


# Standard streams -----------------------------------------------------------------------------------------------------

# Echoes each line in capitals; prints in between, in this process and in a child, and reads from descriptor 0.
ECHO = """
import asyncio, os, subprocess, sys
from licet.mcp.jsonrpc import failed_answer
from licet.mcp.link import Gone, StdioLink

async def main():
    link = StdioLink()
    print("printed", flush=True)
    os.write(1, b"written\\n")
    subprocess.run(["/bin/echo", "child"])
    assert os.read(0, 10) == b""
    try:
        while line := await link.receive():
            await link.send(line.upper() + b"\\n")
    except Gone:
        sys.stderr.write("gone")
    await link.close()

asyncio.run(main())
print("after", flush=True)
"""
NOT_FOR_THE_CLIENT = ["printed", "written", "child"]
LARGE = b"a" * 3_000_000


def start(stdin: Any, stdout: Any) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "-c", ECHO]
    return subprocess.Popen(words, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE)


def test_the_standard_streams_may_be_pipes() -> None:
    with start(subprocess.PIPE, subprocess.PIPE) as process:
        out, errors = process.communicate(b"one\ntwo\n" + LARGE + b"\n", timeout=60)
    assert out == b"ONE\nTWO\n" + LARGE.upper() + b"\nafter\n"
    assert errors.decode().split() == NOT_FOR_THE_CLIENT


def test_the_standard_streams_may_be_files(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"one\ntwo\n" + LARGE + b"\n")
    with (
        (tmp_path / "in").open("rb") as stdin,
        (tmp_path / "out").open("wb") as stdout,
        start(stdin, stdout) as process,
    ):
        _, errors = process.communicate(timeout=60)
    assert (tmp_path / "out").read_bytes() == b"ONE\nTWO\n" + LARGE.upper() + b"\nafter\n"
    assert errors.decode().split() == NOT_FOR_THE_CLIENT


def test_the_standard_streams_may_be_sockets() -> None:
    near, far = socket.socketpair()
    with near, far, start(far.fileno(), far.fileno()) as process:
        far.close()
        near.sendall(b"one\ntwo\n")
        near.shutdown(socket.SHUT_WR)
        assert near.makefile("rb").read() == b"ONE\nTWO\nafter\n"
        _, errors = process.communicate(timeout=60)
    assert errors.decode().split() == NOT_FOR_THE_CLIENT


def test_the_mode_of_a_shared_pipe_is_left_as_it_is() -> None:
    reading, writing = os.pipe()

    async def scene() -> None:
        source, sink = shared_source(os.dup(reading)), shared_sink(os.dup(writing))
        await sink.write(b"x")
        assert await source.read() == b"x"
        assert os.get_blocking(reading)
        assert os.get_blocking(writing)
        sink.close()
        source.close()

    try:
        asyncio.run(scene())
    finally:
        os.close(reading)
        os.close(writing)


def test_bytes_that_come_while_nobody_reads_are_read_later_and_wake_the_loop_once() -> None:
    async def scene() -> list[bytes]:
        reading, writing = os.pipe()
        source = pipe_source(reading)
        waiting = asyncio.create_task(source.read())
        await asyncio.sleep(0)
        os.write(writing, b"a")
        found = [await waiting]
        os.write(writing, b"b")
        while source._is_watched:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        os.write(writing, b"c")
        found.append(await source.read())
        waiting = asyncio.create_task(source.read())
        await asyncio.sleep(0)
        os.write(writing, b"d")
        while source._came is None:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        waiting.cancel()  # what was read is not lost
        found.append(await source.read())
        os.close(writing)
        found.append(await source.read())
        source.close()
        return found

    assert asyncio.run(scene()) == [b"a", b"bc", b"d", b""]


def test_a_client_that_does_not_read_does_not_stop_the_loop_and_its_end_is_noticed() -> None:
    with start(subprocess.PIPE, subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(LARGE + b"\n" + LARGE + b"\n")
        process.stdin.flush()
        process.stdout.read(1)
        process.stdout.close()
        process.stdin.write(b"x\n" * 10)
        process.stdin.flush()
        errors = process.stderr.read()
        process.wait(timeout=60)
    assert b"gone" in errors


# In a thread ----------------------------------------------------------------------------------------------------------


def test_a_thread_reads_and_writes_what_cannot_be_polled() -> None:
    async def scene() -> bytes:
        reading, writing = os.pipe()
        source, sink = ThreadedSource(reading), ThreadedSink(writing)
        waiting = asyncio.create_task(source.read())
        await asyncio.sleep(0)
        waiting.cancel()  # what is being read is not lost
        await sink.write(b"abc")
        await sink.flushed()
        found = await source.read()
        sink.close()
        assert await source.read() == b""
        source.close()
        assert await source.read() == b""
        with pytest.raises(Gone):
            await sink.write(b"x")
        return found

    assert asyncio.run(scene()) == b"abc"


def test_closing_ends_a_read_in_a_thread() -> None:
    async def scene() -> bytes:
        reading, writing = os.pipe()
        source = ThreadedSource(reading)
        waiting = asyncio.create_task(source.read())
        await asyncio.sleep(0)
        source.close()
        found = await waiting
        os.close(writing)  # the thread ends now
        return found

    assert asyncio.run(scene()) == b""


def test_a_thread_notices_that_nobody_reads() -> None:
    async def scene() -> None:
        reading, writing = os.pipe()
        os.close(reading)
        await ThreadedSink(writing).write(b"x")

    with pytest.raises(Gone):
        asyncio.run(scene())


def test_a_link_over_files_that_are_no_pipes_uses_threads(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"a\nb\n")

    async def scene() -> list[bytes]:
        stdin = os.open(tmp_path / "in", os.O_WRONLY | os.O_CREAT)
        link = PipeLink(stdin, os.open(tmp_path / "out", os.O_RDONLY))
        await link.send(b"line\n")
        lines = [await link.receive() for _ in range(3)]
        await link.close()
        return lines

    assert asyncio.run(scene()) == [b"a", b"b", b""]
    assert (tmp_path / "in").read_bytes() == b"line\n"


# Lines that nobody waits for ------------------------------------------------------------------------------------------

BEGIN, END = b'{"jsonrpc":"2.0","id":7,"result":{"a":"', b'"}}'
LAST = b'{"result":{"a":"', b'"},"jsonrpc":"2.0","id":7}'
LONG = {
    "the id first": (BEGIN, END, b'"id":7'),
    "the id last": (*LAST, b'"id":7'),
    "a text as id": (b'{"jsonrpc":"2.0","id":"7","result":{"a":"', END, b'"id":7'),
    "spaces": (b' { "jsonrpc" : "2.0", "id" : 7 , "result": {"a":"', END, b'"id":7'),
    "no answer": (b'{"jsonrpc":"2.0","method":"notifications/message","params":{"a":"', b'","id":7}}', b""),
    "no message": (b"x", b"x", b""),
}


@pytest.mark.parametrize("case", LONG)
@pytest.mark.parametrize("piece", [1 << 16, 100, 7])
def test_an_answer_that_is_too_long_becomes_an_error_and_is_never_held(case: str, piece: int) -> None:
    first, last, expected = LONG[case]
    size = 20_000 if piece > 7 else 9_000
    data = first + b"x" * size + last + b"\nafter\n"
    held: list[int] = []

    class Pieces:
        def __init__(self) -> None:
            self.left = data

        async def read(self) -> bytes:
            held.append(len(lines._buffer) + len(lines._first))
            came, self.left = self.left[:piece], self.left[piece:]
            return came

        def close(self) -> None:
            """There is nothing to close."""

    def instead(first: bytes, last: bytes, size: int) -> bytes:
        return failed_answer(first, last, f"{size} bytes")

    lines = Lines(Pieces(), 100_000, lambda: 5_000, instead)

    async def scene() -> list[bytes]:
        found = []
        while line := await lines.receive():
            found.append(line)
        return found

    *errors, after = asyncio.run(scene())
    assert after == b"after"
    assert [expected in error and f"{len(data) - 7} bytes".encode() in error for error in errors] == [True] * bool(
        expected
    )
    assert max(held) <= 2 * 4096 + max(piece, 5_000)


def test_many_lines_of_a_log_in_one_piece_are_counted_and_not_looked_at() -> None:
    told: list[str] = []
    log = LogLines(told.append, clock=lambda: 0.0)
    log.feed(b"a\n" * 30_000 + b"rest")
    log.feed(b"\n")
    log._tell_dropped()
    assert told[:2] == ["a", "a"]
    assert told[-1] == "… 29801 lines dropped"
    assert len(told) == 201
