"""What a coding agent waits for: a hook with the resident and without, a shell line, and `licet run` from its start.

Everything is a complete process, timed by the wall clock and interleaved with an interpreter that does nothing, which
is the floor. A hook answers a `Read` that the policy allows. The line is `echo ok`, and its row is what it costs more
than the same line bare. All of it happens in a home of its own, with a resident of its own, which ends at the end.

The last row is no race: hooks are run one after the other beside four processes that only compute, and those that do
not answer within their deadline are counted.
"""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.harness import Effort, Row, Target, Timing, VerdictError, at_most, duration, versus_floor
from benchmarks.programs import RUN
from licet.hooks.answering import client_words
from licet.hooks.limits import HOOK_SECONDS

__all__ = ["measure"]

WARM, COLD, LINE, LATE = at_most(2), at_most(15), at_most(4), at_most(0)
BARE = "python -I -S -c pass"
BUSY = 4  # processes that only compute
HOOKS, HOOKS_QUICK = 1000, 100
_WARM, _COLD, _LINE, _BARE_LINE = "hook with the resident", "hook without a resident", "shell line", "the line bare"
_FLAGS, _POLICY = "licet run --allow-read . -- true", "licet run -- true, with a policy"

_WRITTEN = """
agent: coder
capabilities:
  max_side_effect_class: write_limited
  fs_reach: {read: ["${workdir}"], write: ["${workdir}"]}
  deny: ["fs:*:${workdir}/.env"]
  process: {allowed_binaries: [sh, bash, "true"]}
  env: [PATH]
  approvals: {write: manifest}
  budget: {max_calls_per_day: 1000000}
"""
# In a process with the home of the agent: this one keeps its own.
_ACCEPT = """
import sys
from pathlib import Path
from licet.assemble.acceptance import accept_policy
from licet.hooks.policy_choice import HookPolicies, write_policies
from licet.policy_files.load import load_own_manifest
root, policy = sys.argv[1:]
write_policies(HookPolicies().with_project(root, policy))
accept_policy(Path(policy), load_own_manifest(Path(policy)))
"""
_STOP = "from licet.hooks.resident_control import stop_residents; stop_residents()"


class _Agent:
    """A coding agent in a project with an accepted policy, as its hooks see it."""

    def __init__(self, place: Path) -> None:
        self.root, home = place / "project", place / "home"
        policy = self.root / ".licet" / "licet.yaml"
        for directory in (policy.parent, home):
            directory.mkdir(parents=True)
        policy.write_text(_WRITTEN)
        (self.root / "a.txt").write_text("hello\n")
        (self.root / ".env").write_text("TOKEN=1\n")
        self.environment = {"HOME": str(home), "PATH": os.environ.get("PATH", os.defpath)}
        self._calls = 0
        self.run([sys.executable, "-I", "-c", _ACCEPT, str(self.root), str(policy)])

    def run(self, words: Sequence[str], said: bytes = b"") -> bytes:
        """Run a command in the project; returns its output."""
        done = subprocess.run(words, input=said, env=self.environment, cwd=self.root, capture_output=True, check=False)
        if done.returncode:
            raise VerdictError(f"`{shlex.join(words[:8])}`: {done.returncode}, {done.stderr.decode()[-300:]}")
        return done.stdout

    def event(self, tool: str, **arguments: str) -> bytes:
        """A call of a tool, as the agent tells it before it runs."""
        self._calls += 1
        # No end of a call is reported, and a session has at most a thousand that are under way.
        about = {
            "session_id": f"bench{self._calls // 500}",
            "cwd": str(self.root),
            "hook_event_name": "PreToolUse",
            "transcript_path": "/t",
        }
        call = {"tool_name": tool, "tool_input": arguments, "tool_use_id": f"t{self._calls}"}
        return json.dumps({**about, "permission_mode": "default", **call}).encode()

    def line(self, text: str) -> list[str]:
        """The client of a line that the hook has decided about."""
        answer = json.loads(
            self.run([*client_words(), "hook", "claude", "PreToolUse"], self.event("Bash", command=text))
        )
        words = shlex.split(answer["hookSpecificOutput"]["updatedInput"]["command"])
        place = words.index("line")
        return [*client_words(), "line", words[place + 1], text]

    def check(self, hook: Sequence[str]) -> None:
        """Raise `VerdictError` unless a hook refuses what the policy denies."""
        answer = self.run(hook, self.event("Read", file_path=str(self.root / ".env")))
        if b'"deny"' not in answer:
            raise VerdictError(f"`{shlex.join(hook)}` did not refuse: {answer.decode()}")


def measure(effort: Effort) -> list[Row]:
    """The rows of this part; where lines cannot run behind walls, rows that say so."""
    from licet.sandbox import probe

    rows = ((_WARM, WARM), (_COLD, COLD), (_LINE, LINE), (_FLAGS, RUN), (_POLICY, RUN))
    if not probe.support().namespaces:
        return [Row(what, BARE, target=target, note="there are no namespaces here") for what, target in rows]
    with TemporaryDirectory() as place:
        agent = _Agent(Path(place).resolve())
        try:
            return [*_rows(rows, _timed(agent, effort)), _under_load(agent, effort)]
        except (OSError, VerdictError) as wrong:
            return [Row(what, BARE, target=target, note=str(wrong)) for what, target in rows]
        finally:
            agent.run([sys.executable, "-I", "-c", _STOP])


def _rows(rows: Sequence[tuple[str, Target]], times: Mapping[str, Timing]) -> Iterator[Row]:
    floor = times[BARE]
    for what, target in rows:
        if what != _LINE:
            yield versus_floor(what, BARE, times[what], floor, target)
            continue
        more = times[what].best - times[_BARE_LINE].best
        yield Row(f"{what}, more than bare", BARE, duration(more), duration(floor.best), more / floor.best, target)


def _timed(agent: _Agent, effort: Effort) -> Mapping[str, Timing]:
    """The times of everything, interleaved: the first run of each warms caches, and starts the resident."""
    warm = [*client_words(), "hook", "claude", "PreToolUse"]
    cold = [sys.executable, "-I", "-m", "licet", "hook", "claude", "PreToolUse"]
    run = [sys.executable, "-I", "-m", "licet", "run"]
    for hook in (warm, cold):
        agent.check(hook)
    times: dict[str, list[int]] = {}
    for number in range(effort.processes + 1):
        read = agent.event("Read", file_path=str(agent.root / "a.txt"))
        races: tuple[tuple[str, Sequence[str], bytes, bytes], ...] = (
            (BARE, [sys.executable, "-I", "-S", "-c", "pass"], b"", b""),
            (_WARM, warm, read, b""),
            (_COLD, cold, read, b""),
            (_BARE_LINE, ["/bin/sh", "-c", "echo ok"], b"", b"ok\n"),
            (_LINE, agent.line("echo ok"), b"", b"ok\n"),
            (_FLAGS, [*run, "--allow-read", ".", "--", "true"], b"", b""),
            (_POLICY, [*run, "--", "true"], b"", b""),
        )
        for what, words, said, expected in races:
            began = time.perf_counter_ns()
            output = agent.run(words, said)
            took = time.perf_counter_ns() - began
            if output != expected:
                raise VerdictError(f"`{what}` printed {output!r}")
            if number:
                times.setdefault(what, []).append(took)
    return {what: Timing(min(each), median(each)) for what, each in times.items()}


def _under_load(agent: _Agent, effort: Effort) -> Row:
    """How many hooks miss their deadline while other processes take every core."""
    count = HOOKS if effort.processes >= Effort.full().processes else HOOKS_QUICK
    hook, longest, late = [*client_words(), "hook", "claude", "PreToolUse"], 0, 0
    with _busy():
        for _ in range(count):
            read = agent.event("Read", file_path=str(agent.root / "a.txt"))
            began = time.perf_counter_ns()
            output = agent.run(hook, read)
            took = time.perf_counter_ns() - began
            longest, late = max(longest, took), late + (took > HOOK_SECONDS * 1e9)
            if output:  # a hook whose time is up refuses
                late += 1
    what = f"of {count:,} hooks under {BUSY} busy loops, late"
    return Row(what, f"{HOOK_SECONDS:g} s", f"{duration(longest)} at most", "", float(late), LATE)


@contextmanager
def _busy() -> Iterator[None]:
    """Processes that only compute."""
    with ExitStack() as ended:
        for _ in range(BUSY):
            process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"])
            ended.callback(process.wait)
            ended.callback(process.kill)
        yield
