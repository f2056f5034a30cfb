"""The time to read and write a small file through `ctx.fs`, compared with the same without any check.

The floor of a read is `open().read()`. The floor of a write is the same safe write by hand: a temporary file, then a
rename. Small files never wait for a thread, so a call is run by one step, without an event loop.
"""

import os
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from benchmarks.harness import Contestant, Effort, Row, at_most, race, versus_floor
from licet import CapabilitySet, load_manifest
from licet.backends.files.local import LocalFiles
from licet.core.algebra.rules import Use
from licet.core.decision.reach import reach_of
from licet.core.decision.request import Approval, Request
from licet.core.policy.tool import ToolSpec
from licet.guard.grant import Grant
from licet.guard.handles.files import ScopedFiles

__all__ = ["measure"]

READ_TARGET = at_most(3)
TEXT = "a line of text\n" * 20
MANIFEST = """\
agent: clerk
capabilities:
  tools: [t]
  max_side_effect_class: write_limited
  fs_reach: {read: ["${workdir}"], write: ["${workdir}/out"]}
  deny: ["fs:*:${workdir}/private"]
"""


def measure(effort: Effort) -> list[Row]:
    """Every row about files."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made).resolve()
        (place / "data" / "deep").mkdir(parents=True)
        (place / "out").mkdir()
        names = ["a.txt", "data/b.txt", "data/deep/c.txt"]
        for number, name in enumerate(names):
            (place / name).write_text(f"{number}{TEXT}")
        (place / "link").symlink_to("data")
        paths = [str(place / name) for name in names]
        return [*_reads(place, paths, effort), *_writes(place, effort)]


def _reads(place: Path, paths: list[str], effort: Effort) -> list[Row]:
    expected = [Path(path).read_text() for path in paths]
    floor = Contestant("open().read()", _plain_read, paths, str)
    rows = []
    for what, openat2, target in (("read a small file", True, READ_TARGET), ("… without openat2", False, None)):
        fs = _scoped(place, openat2)
        asked = Contestant("licet", _stepped(fs.read), paths, str)
        times = race([asked, floor], expected, effort)
        rows.append(versus_floor(what, floor.name, times["licet"], times[floor.name], target))
    linked = [str(place / "link" / "b.txt")]
    asked = Contestant("licet", _stepped(_scoped(place, True).read), linked, str)
    floor = Contestant("open().read()", _plain_read, linked, str)
    times = race([asked, floor], expected[1:2], effort)
    return [*rows, versus_floor("… through a link", floor.name, times["licet"], times[floor.name])]


def _writes(place: Path, effort: Effort) -> list[Row]:
    path = str(place / "out" / "file")
    write = _stepped(_scoped(place, True).write)

    def written(text: str) -> None:
        write(path, text)

    def by_hand(text: str) -> None:
        with open(f"{path}.new", "w") as file:
            file.write(text)
        os.replace(f"{path}.new", path)

    def content(_: None) -> str:
        return Path(path).read_text()

    asked, floor = Contestant("licet", written, [TEXT], content), Contestant("write, rename", by_hand, [TEXT], content)
    times = race([asked, floor], [TEXT], effort)
    return [versus_floor("replace a small file", floor.name, times["licet"], times[floor.name])]


def _plain_read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _stepped(act: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    def run(*given: Any) -> Any:
        try:
            act(*given).send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("a small file needs no thread")

    return run


async def _nobody(approval: Approval, use: Use) -> None:
    raise AssertionError("nothing here asks")


def _scoped(place: Path, openat2: bool) -> ScopedFiles:
    policy = place / "licet-agent.yaml"
    policy.write_text(MANIFEST)
    spec = ToolSpec("t", CapabilitySet(["fs:*:*"]), "write_limited", "restricted")
    manifest = load_manifest(policy).declare([spec]).expand(str(place), str(place))
    reach = reach_of(manifest, "t")
    if reach is None:
        raise AssertionError("the manifest admits its tool")
    return ScopedFiles(Grant(Request("t"), reach, manifest.digest, (), _nobody), LocalFiles(openat2), str(place))
