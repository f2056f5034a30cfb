"""Third-party cases for paths, on real files: traversal payloads, links, special files, prefixes.

A case says what must come: `deny`, `allow`, `check_true` (asking about it is permitted), or `confine`: an error, or
a file of the case that is inside its roots. Run where LICET_CORPORA names the folder that holds them.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attacks.granted import CANARY, both_ways
from effort import LONG
from guard.grants import grant
from licet import Malformed, Refused
from licet.backends.files.local import LocalFiles
from licet.guard.handles.files import ScopedFiles

CORPORA = os.environ.get("LICET_CORPORA")
pytestmark = pytest.mark.skipif(not CORPORA, reason="LICET_CORPORA does not name the folder of third-party cases")

# Usability, not security: where the cases expect one thing and licet does another, and why (docs/limits.md).
DIFFERENCES: dict[str, str] = {}


def build(fixture: list[str], place: Path) -> None:
    """Make the files (`a=content`), directories (`a/`) and links (`a -> b`) of a case."""
    for entry in fixture:
        link, arrow, target = entry.partition(" -> ")
        file, equals, content = entry.partition("=")
        path = place / (link if arrow else file if equals else entry)
        path.parent.mkdir(parents=True, exist_ok=True)
        if arrow:
            path.symlink_to(target)
        elif equals:
            path.write_text(content)
        else:
            path.mkdir(exist_ok=True)


def outcome(case: dict[str, Any], place: Path, files: LocalFiles) -> str:
    """What comes of a case: a text that was read, `done`, `Refused`, or the name of the system's error."""

    def placed(text: str) -> str:
        for name, path in (("$ROOT", place / "ROOT"), ("$OUT", place / "OUT"), ("$T", place)):
            text = text.replace(name, str(path))
        return text

    policy = case["policy"]
    try:
        rules = [f"fs:{act}:{placed(path)}" for act in ("read", "write") for path in policy.get(act, ())]
        deny = [f"fs:*:{placed(path)}" for path in policy.get("deny", ())]
        fs = ScopedFiles(grant(rules, deny=deny), files, placed(case.get("cwd", "$T")))
    except Malformed:
        return "Refused"  # a policy that cannot be read allows nothing
    path = placed(case["path"])
    acts: dict[str, Any] = {"read": fs.read, "list": fs.list, "stat": fs.stat, "check": fs.exists}
    act = acts[case["op"]](path)

    async def run() -> Any:
        return await act

    try:
        found = asyncio.run(run())
    except Refused as refusal:
        return "Refused" if refusal.code == "PATH_NOT_REACHABLE" else refusal.code
    except OSError as error:
        return type(error).__name__
    return found if case["op"] == "read" else "done"


def is_right(case: dict[str, Any], came: str) -> bool:
    """Whether what came is what a case allows to come."""
    failed = came == "Refused" or came.endswith("Error")
    match case["expect"]:
        case "deny":
            return came == "Refused"
        case "allow":
            return came == "OK"
        case "check_true":
            return came == "done"
        case "confine":
            own = {entry.partition("=")[2] for entry in case["fixture"] if "=" in entry} - {CANARY}
            return failed or came in own | {"done"}
    raise AssertionError(case["expect"])


@both_ways
def test_every_case_about_paths_is_right(
    tmp_path: Path, openat2: bool, report_sample: Callable[[int, int], None]
) -> None:
    known = [json.loads(line) for line in (Path(str(CORPORA)) / "path_cases.jsonl").read_text().splitlines()]
    # Most cases only say that nothing outside may be reached, in hundreds of spellings.
    cases = [case for number, case in enumerate(known) if LONG or case["expect"] != "confine" or not number % 8]
    report_sample(len(cases), len(known))
    places: dict[str, Path] = {}
    files, wrong, seen = LocalFiles(openat2=openat2), [], Counter[str]()
    for case in cases:
        key = json.dumps(case["fixture"])
        if key not in places:
            places[key] = tmp_path.resolve() / str(len(places))
            places[key].mkdir()
            build(case["fixture"], places[key])
        came = outcome(case, places[key], files)
        seen[came] += 1
        if not is_right(case, came):
            wrong.append((case["id"], case["expect"], came))
    assert [found for found in wrong if found[0] not in DIFFERENCES] == []
    assert {found[0] for found in wrong} == set(DIFFERENCES)  # what is no difference any more is not listed as one
    assert len(known) > 1000
    assert seen["OK"] > 5
    assert seen["Refused"] > len(cases) / 6
