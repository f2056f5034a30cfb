"""Reads recordings for `licet learn`, and finds the policy that each of them is about."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from licet.assemble.recording import RECORDINGS
from licet.assemble.state import state_directory
from licet.core.algebra.scope import visible
from licet.core.review.learn import Recorded
from licet.core.review.recording import BadRecording, RecordingStart, recording_start, touch
from licet.policy_files.policy_paths import POLICY_DIRECTORY, WORKSPACE_FILE, policy_root
from licet.regular_files import open_regular, size_text
from licet.surfaces.cli.discovery import find_policy
from licet.surfaces.cli.output import fail, show

_LONGEST_LINE = 1 << 20
_STEP = 20_000  # lines between two changes of the progress bar


class Found(Struct):
    """The recordings that are about one policy."""

    target: Path
    starts: list[RecordingStart]
    files: list[Path]
    recorded: Recorded

    @property
    def is_program(self) -> bool:
        """Whether all of them are of programs, which `licet run` starts."""
        return all(start.source == "program" for start in self.starts)


def recordings_of(manifest: Path | None) -> list[Path]:
    """All recordings of a workspace: of the directory of a policy, or of the current one."""
    folder = state_directory(policy_root(manifest) if manifest is not None else Path.cwd()) / RECORDINGS
    return sorted(folder.glob("*.jsonl")) if folder.is_dir() else []


def read_recordings(paths: Sequence[Path], manifest: Path | None, as_json: bool) -> list[Found]:
    """Read recordings and group them by policy; exits with 1 if one cannot be read."""
    found: dict[str, Found] = {}
    with _progress(paths) as tell:
        for path in paths:
            try:
                with open_regular(path) as fd, os.fdopen(os.dup(fd), "rb") as file:
                    _read(path, iter(partial(file.readline, _LONGEST_LINE + 1), b""), manifest, found, tell)
            except OSError as wrong:
                fail(f"{path} cannot be read: {wrong.strerror}", as_json)
            except BadRecording as wrong:
                fail(str(wrong), as_json)
    return [one for _, one in sorted(found.items())]


def _read(path: Path, lines: Iterable[bytes], manifest: Path | None, found: dict[str, Found], tell: Any) -> None:
    number, size = 0, 0
    for number, line in enumerate(lines, 1):
        if len(line) > _LONGEST_LINE:
            raise BadRecording(f"{visible(str(path))}:{number}: a line of more than {size_text(_LONGEST_LINE)}")
        try:
            if number == 1:
                start = recording_start(line)
                target = manifest or _target(start)
                group = found.setdefault(os.path.abspath(target), Found(target, [], [], Recorded()))
                group.starts.append(start)
                group.files.append(path)
                add = group.recorded.add
            else:
                add(touch(line))
        except BadRecording as wrong:
            if number > 1 and not line.endswith(b"\n"):  # what was recording was ended while it wrote
                show(f"licet: the last line of {path} is incomplete, and left out", err=True, colour="yellow")
                break
            raise BadRecording(f"{visible(str(path))}:{number}: {wrong}") from None
        size += len(line)
        if number % _STEP == 0:
            tell(size)
            size = 0
    tell(size)
    if not number:
        raise BadRecording(f"{visible(str(path))}: it is empty")


def _target(start: RecordingStart) -> Path:
    """The policy that a recording is about. Only a file that is there is taken from a recording."""
    if start.manifest:
        if not os.path.isfile(start.manifest):
            named = f"its policy is {visible(start.manifest)}, which is not there"
            raise BadRecording(f"{named}: name the policy to write with --manifest")
        return Path(start.manifest)
    return find_policy() or Path(POLICY_DIRECTORY, WORKSPACE_FILE)


@contextmanager
def _progress(paths: Sequence[Path]) -> Iterator[Any]:
    """A function that draws progress: call it with the number of bytes read. It draws only on a terminal."""
    total = sum(path.stat().st_size for path in paths if path.is_file())
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda size: None
        return
    with click.progressbar(length=total, label="reading recordings", file=sys.stderr) as bar:
        yield bar.update
