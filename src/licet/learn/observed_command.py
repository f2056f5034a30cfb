"""Puts `licet observe` together: the recording and its place, a proxy that allows everything, and the command."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct

from licet.assemble.recording import RECORDINGS
from licet.assemble.review import Places, state_directory
from licet.core.algebra.rules import Capability, Use
from licet.core.decision.decision import Event
from licet.core.decision.reach import reach_of
from licet.core.decision.request import Approval, Request
from licet.core.policy.layer import Layer, Rule
from licet.core.policy.manifest import COMMANDS, Manifest, with_commands
from licet.core.policy.terms import MaxEffect
from licet.core.review.recording_lines import RecordingStart
from licet.core.values import Origin
from licet.guard.grant import Grant
from licet.guard.redaction.redact import Redactor
from licet.learn.limits import LONGEST_PROCESS_NAME
from licet.policy_files.organisation import under_organisation
from licet.sandbox import scratch as scratches
from licet.sandbox.observe import watching
from licet.sandbox.observe.guardian import Orders
from licet.sandbox.observe.recorder import GivenFiles, Recorder, RecordingProxy, Summary
from licet.sandbox.observe.watching import Ended, NotObserved
from licet.sandbox.programs.program_files import libraries_beside
from licet.sandbox.programs.walls import OWN_LOOPBACK, proxy_variables

if TYPE_CHECKING:
    from licet.sandbox.observe.own_trust import OwnTrust

__all__ = ["NotObserved", "Observed", "new_recording", "observe_command"]

_ORIGIN = Origin("licet observe", 0, 0)
_EVERYWHERE = ("0.0.0.0/0", "::/0")
_LIMITS = {"host_memory_mb": 1024, "host_files": 256}


class Observed(Struct, frozen=True):
    """An observed command: how it ended, what was recorded where, and why host names are missing, if they are."""

    ended: Ended
    summary: Summary
    recording: Path
    names: bool  # whether host names were recorded
    inspected: bool  # whether HTTPS was looked into
    without_names: str  # why not; empty if that was wished


def new_recording(program: str) -> Path:
    """A path for a new recording of this directory, in the state root. The directories are made."""
    folder = state_directory(Path.cwd()) / RECORDINGS
    folder.parent.mkdir(0o700, parents=True, exist_ok=True)
    folder.mkdir(0o700, exist_ok=True)
    folder.chmod(0o700)
    safe = "".join(sign if sign.isalnum() or sign in "._+-" else "-" for sign in os.path.basename(program))[:60]
    moment = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    names = (f"{moment}-{safe}{more}.jsonl" for more in ("", *(f"-{number}" for number in range(2, 1000))))
    return next(path for name in names if not (path := folder / name).exists())


def observe_command(
    binary: str,
    argv: tuple[str, ...],
    recording: Path,
    *,
    names: bool,
    inspect: bool = False,
    secrets: Mapping[str, str],
    shown: Sequence[str],
) -> Observed:
    """Run a command without walls, and record what it touches.

    With `names` its network has a proxy, and with `inspect` that looks into HTTPS. `shown` is the command without
    secrets, as it is recorded; the values in `secrets` are taken out of everything else. Raises `NotObserved`, and
    `OSError` if the recording cannot be written. Call it before any thread is started.
    """
    redactor = Redactor()
    for name, value in secrets.items():
        redactor.add(name, value)
    with ExitStack() as made:
        scratch = _new_scratch()
        if scratch:
            made.callback(scratches.remove, scratch)
        places = Places.here()
        trust = _own_trust(made, places) if inspect else None
        variables = trust.variables if trust is not None else {}
        start = RecordingStart(
            source="program",
            started=time.time_ns() // 1_000_000,
            command=tuple(redactor.texts([_writable(word) for word in shown])),
            workdir=_writable(places.workdir),
            home=_writable(places.home),
            inspected=True if inspect else UNSET,
        )
        runtime = [*_runtime(binary), *([trust.folder] if trust is not None else ())]

        def redacted_name(text: str) -> str:
            return redactor.name(text, LONGEST_PROCESS_NAME)

        recorder = Recorder(recording, start, GivenFiles(runtime, scratch), redactor.text, redacted_name)
        try:
            started = watching.start(
                lambda own: _orders(binary, argv, scratch, own, variables), network=names, needed=inspect
            )
            proxy = _proxy(recorder, trust) if started.proxy is not None else None
            ended = watching.watch(started, recorder, proxy, os.path.basename(binary))
        except BaseException:
            _keep_or_remove(recorder)
            raise
        summary = recorder.finish()
    return Observed(ended, summary, recording, proxy is not None, inspect, started.without_network)


def _writable(text: str) -> str:
    """A text that JSON can carry: bytes that are not UTF-8 are spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _keep_or_remove(recorder: Recorder) -> None:
    """Keep what was recorded before an error; a recording of nothing is removed."""
    with suppress(OSError):
        recorder.flush()
    recorder.close()
    if recorder.empty:
        recorder.path.unlink(missing_ok=True)


def _new_scratch() -> str | None:
    """A directory for temporary files, as `licet run` gives one; None if none can be made, and then they are seen."""
    try:
        return scratches.new()
    except OSError:
        return None


def _own_trust(made: ExitStack, places: Places) -> "OwnTrust":
    from licet.sandbox.observe.own_trust import own_trust  # few commands are looked into

    try:
        return made.enter_context(own_trust(os.environ, places.workdir))
    except (OSError, ValueError) as wrong:
        raise NotObserved(f"the certificates of this run cannot be made: {wrong}") from None


def _orders(
    binary: str, argv: tuple[str, ...], scratch: str | None, network: bool, variables: Mapping[str, str]
) -> Orders:
    environment = {**os.environ, **({"TMPDIR": scratch} if scratch else {}), **variables}
    environment |= proxy_variables(OWN_LOOPBACK) if network else {}
    return Orders(binary, argv, environment, network)


def _runtime(binary: str) -> list[str]:
    """What `licet run` lets this program read without a rule: itself, its interpreter, and the libraries of both."""
    from licet.packages.launchers import LaunchError
    from licet.packages.package_store import PackageError
    from licet.packages.programs import interpreter_of, runtime_of

    found = [os.path.abspath(binary), os.path.realpath(binary), *libraries_beside(os.path.realpath(binary))]
    starter: str | None = None
    with suppress(LaunchError, PackageError):
        starter, _ = interpreter_of(binary)
    return [*found, *runtime_of(starter or binary)]


# The proxy -----------------------------------------------------------------------------------------------------------


def _proxy(recorder: Recorder, trust: "OwnTrust | None") -> RecordingProxy:
    from licet.backends.http import HttpClient

    return RecordingProxy(recorder, _grant_of_everything, HttpClient(), None if trust is None else trust.inspecting)


def _grant_of_everything(observer: Callable[[Event], None]) -> Grant:
    """A grant of every request to every address. Nobody is asked."""
    manifest = Manifest(
        agent="observe",
        origin=_ORIGIN,
        layers=(Layer("manifest", "everything", _ORIGIN, (Rule(Capability("network:*:*"), _ORIGIN, "grants"),)),),
        max_effects=(MaxEffect("destructive", _ORIGIN, True),),
        private=(_EVERYWHERE,),
        limits=_LIMITS,
    )
    manifest = under_organisation(manifest)  # its destinations and its class hold for what goes through the proxy
    reach = reach_of(with_commands(manifest), COMMANDS)
    if reach is None:
        raise RuntimeError("commands are not admitted")
    return Grant(Request(COMMANDS), reach, manifest.digest, (observer,), _agree, _LIMITS)


async def _agree(approval: Approval, use: Use) -> None:
    """Every delete passes: nothing is enforced here."""
