"""Verbs of cases that need more than files and a command."""

import asyncio
import atexit
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema_rs
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import warm
from cli.cases import ROOT, Step, World, compare
from cli.terminals import at_terminal
from kept_calls import START, Ticking, look, make, pay, receipts
from licet import Backends, CapabilitySet, Gate, load_manifest
from licet.assemble import review
from licet.assemble.review import state_directory
from licet.backends.approvals.store import SqliteApprovals
from licet.backends.ledger.writer import SqliteLedger
from licet.backends.secrets import generated_key
from licet.core.decision.reach import reach_of
from licet.core.ledger.entry import Entry
from licet.core.policy.layer import CLASSES, permits
from licet.source.declarations import read_tools
from organisations import put


def formats(world: World, rest: str, expected: dict[str, Any]) -> None:
    """`licet check` prints these lines and this summary, and --json and --sarif say the same."""
    world.do_licet(f"check {rest}", {"exit": 0, "out": expected["lines"], "err": expected["summary"]} | _code(expected))
    _json_says_the_same(world, rest, expected)
    _sarif_says_the_same(world, rest, expected)


def _code(expected: dict[str, Any]) -> dict[str, Any]:
    return {"exit": expected.get("exit", 0), "err": expected["summary"]}


def _json_says_the_same(world: World, rest: str, expected: dict[str, Any]) -> None:
    world.do_licet(f"check {rest} --json", _code(expected) | {"err": ""})
    said = json.loads(world.out)
    compare("files of --json", "", said["files"], list(takewhile(lambda word: word[:2] != "--", world.words(rest))))
    severities = [problem["severity"] for problem in said["problems"]]
    compare("errors of --json", "", said["errors"], severities.count("error"))
    compare("warnings of --json", "", said["warnings"], severities.count("warning"))
    lines = [_line_of(problem).replace("\x1b", "\\u001b") for problem in said["problems"]]
    compare("problems of --json", "lines", "\n".join(lines), expected["lines"])
    messages = [problem["message"].replace("\x1b", "\\u001b") for problem in said["problems"]]
    compare("messages of --json", "lines", "\n".join(messages), expected["lines"])


def _line_of(problem: dict[str, Any]) -> str:
    place = f"{problem['file']}:{problem['line']}:{problem['column']}"
    tail = f"; {problem['hint']}" if problem["hint"] else ""
    return f"{place}: {problem['severity']}: found {problem['found']}, expected {problem['expected']}{tail}"


def _sarif_says_the_same(world: World, rest: str, expected: dict[str, Any]) -> None:
    world.do_licet(f"check {rest} --sarif", _code(expected) | {"err": ""})
    log = json.loads(world.out)
    compare("version of --sarif", "", log["version"], "2.1.0")
    compare("schema of --sarif", "ends", log["$schema"], "sarif-schema-2.1.0.json")
    [one] = log["runs"]
    compare("tool of --sarif", "", one["tool"]["driver"]["name"], "licet")
    rules = [rule["id"] for rule in one["tool"]["driver"]["rules"]]
    said = []
    for found in one["results"]:
        compare("rule of --sarif", "", rules[found["ruleIndex"]], found["ruleId"])
        [location] = found["locations"]
        place, region = location["physicalLocation"]["artifactLocation"], location["physicalLocation"]["region"]
        text = found["message"]["text"]
        said.append(f"{place['uri']}:{region['startLine']}:{region['startColumn']}: {found['level']}: {text}")
    lines = [line.replace("\\u001b[2J", "%1B%5B2J") for line in expected["lines"]]
    compare("results of --sarif", "lines", "\n".join(said), lines)


def installed(world: World, rest: str, expected: Any) -> None:
    """The installed command itself, with pipes."""
    given = expected if isinstance(expected, dict) else {}
    umask, most = given.pop("umask", -1), given.pop("limit", 0)
    limited = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most})); "
    words = [sys.executable, "-c", f"{limited}os.execv(sys.argv[1], sys.argv[1:])"] if most else []
    words += [warm.SCRIPT, *world.words(rest)]
    done = subprocess.run(words, check=False, capture_output=True, text=True, umask=umask)
    world.answer(done.returncode, done.stdout, done.stderr, done.stdout + done.stderr, expected)


# What `licet init` writes ---------------------------------------------------------------------------------------------


def fits(world: World, rest: str, policy: str) -> None:
    """A policy gives each tool of tools.py all that it needs, and allows nothing that none of them needs."""
    specs = read_tools("tools.py").specs
    manifest = review(policy).manifest
    assert manifest is not None
    compare("tools that are admitted", "", set(manifest.admissions), {spec.name for spec in specs})
    here, home = os.getcwd(), str(Path.home())
    needs = {spec.name: spec.needs.expand(here, home) for spec in specs}
    stated = CapabilitySet(rule for one in needs.values() for rule in one.allow if not rule.defers)
    connectors = [f"connector:use:{name}" for name in manifest.connectors.names()]
    allowed = CapabilitySet([*(rule for rule in manifest.ceiling.allow if rule.domain != "connector"), *connectors])
    always = CapabilitySet(["storage:*:tool-private", "storage:*:session", *(f"tool:call:{s.name}" for s in specs)])
    compare("what is allowed and not needed", "", allowed - (stated | always), ())
    compare("what is needed and not allowed", "", stated - allowed, ())
    for spec in specs:
        reach = reach_of(manifest, spec.name)
        assert reach is not None
        compare(f"grounds of {spec.name}", "", reach.grounds, ())
        if not any(rule.defers for rule in spec.needs.allow):
            named_tcp = CapabilitySet(rule for rule in needs[spec.name].allow if str(rule).startswith("network:tcp:"))
            held = needs[spec.name] & permits(spec.effect or CLASSES[0], named_tcp)
            compare(f"grant of {spec.name}", "", (held - reach.grant, reach.grant - held), ((), ()))


def schema_accepts(world: World, rest: str, policy: str) -> None:
    """The schema that the first line of a file names accepts the file."""
    text = Path(policy).read_text("utf-8")
    _, _, schema = text.partition("\n")[0].partition("# yaml-language-server: $schema=")
    validator = jsonschema_rs.validator_for(json.loads(Path(policy).parent.joinpath(schema).read_text()))
    compare("accepted by the schema", "", validator.is_valid(yaml.safe_load(text)), True)


def every_line_is_needed(world: World, rest: str, count: int) -> None:
    """Without any one line of a list, the written policy has errors."""
    policy = Path(".licet/licet.yaml")
    lines = policy.read_text("utf-8").splitlines()
    needed = [number for number, line in enumerate(lines) if line.strip().startswith("- ") and "  # " in line]
    compare("lines of lists", "", len(needed), count)
    for number in needed:
        policy.write_text("\n".join(line for at, line in enumerate(lines) if at != number))
        world.do_licet("check", {"exit": 1})


def without_comments(world: World, rest: str, expected: str) -> None:
    lines = Path(".licet/licet.yaml").read_text("utf-8").splitlines()
    compare("file", "", "".join(f"{line}\n" for line in lines if not line.strip().startswith("#")), expected)


# Ledgers of real calls ------------------------------------------------------------------------------------------------

_states: dict[str, Path] = {}


def kept_calls(world: World, rest: str, kind: str) -> None:
    """Copy the state of real calls; <r1>, <r2>, … are their receipts, <key> signs, <made> has their manifest."""
    if kind not in _states:
        folder = Path(tempfile.mkdtemp(prefix="licet-kept-")).resolve()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _states[kind] = make(folder / "made", "full" if kind == "full" else "digests")
        if kind == "unended":
            without_receipts(_states[kind])
    state = _states[kind]
    shutil.copytree(state, "state")
    for number, one in enumerate(receipts(state), 1):
        world.known[f"r{number}"] = one["id"]
    world.known |= {"made": str(state.parent), "key": (state / "ledger.pub").read_text().strip()}
    world.known = {name: world.filled(value) for name, value in world.known.items()}


class _Dying:
    """A ledger that loses the receipt, as if the process had died before it."""

    keeps_facts = True

    def __init__(self, ledger: SqliteLedger) -> None:
        self._ledger = ledger

    async def record(self, entry: Entry) -> None:
        if entry.kind == "decision":
            await self._ledger.record(entry)


class _Set(Ticking):
    """A clock that stays where it was set."""

    minutes = 0

    def now(self) -> datetime:
        return START + timedelta(minutes=self.minutes)


def without_receipts(state: Path) -> None:
    """Add two calls without a receipt: one dated between the fourth and the fifth, and the last of all."""
    ledger, clock = SqliteLedger(state / "ledger.sqlite"), _Set()
    backends = Backends.memory(files={"/srv/notes/a": b"Rain"}, ledger=_Dying(ledger), clock=clock)
    gate = Gate(load_manifest(state.parent / "desk.yaml"), [look, pay], backends)

    async def calls() -> None:
        for clock.minutes, name, arguments in ((270, "pay", {}), (540, "look", {"path": "/srv/notes/a"})):
            async with gate.session("late") as opened:
                assert (await opened.call(name, arguments)).ok

    asyncio.run(calls())
    ledger.close()


def decisions_alone_have_no_code(world: World, rest: str, nothing: None) -> None:
    for one in json.loads(world.out)["receipts"]:
        decision = one["kind"] == "decision"
        compare("no code", "", one["code"] is None, decision)
        compare("no receipt", "", one["reason"] == "no receipt (yet)", decision)


def new_key(world: World, rest: str, name: str) -> None:
    world.known[name] = generated_key().public


def find_state(world: World, rest: str, name: str) -> None:
    """Where licet keeps the state of this directory."""
    world.known[name] = str(state_directory(Path.cwd()))


def not_as_root(world: World, rest: str, nothing: None) -> None:
    if os.geteuid() == 0:
        pytest.skip("root looks into everything")


# What is printed ------------------------------------------------------------------------------------------------------

_PLACE = re.compile(r"""(?<![^\s("'`])(?!fs:)[^\s("'`]*(?:\.py|\.yaml)[:0-9]*""")


def places(world: World, rest: str, expected: list[str]) -> None:
    """The files that the last command named."""
    # Paths that no grant may write are absolute, whatever the current directory is.
    said = re.sub(r'"never_writable": \[.*?\n  \]', "", world.output, flags=re.DOTALL)
    compare("named", "", set(_PLACE.findall(said)), set(expected))


def files_in(world: World, folder: str, count: int) -> None:
    compare(f"files in {folder}", "", len(os.listdir(world.filled(folder))), count)


def it_accepts(world: World, rest: str, values: list[Any]) -> None:
    """The schema that was printed accepts the first value and refuses the second."""
    validator = jsonschema_rs.validator_for(json.loads(world.out))
    compare("accepted", "", [validator.is_valid(value) for value in values], [True, False])


def agents_with_examples(world: World, rest: str, names: list[str]) -> None:
    having = {path.parent.name for path in ROOT.glob("examples/*/*.yaml") if "\nexamples:" in path.read_text("utf-8")}
    compare("agents with examples", "", having, set(names))


def fits_into(world: World, rest: str, expected: list[Any]) -> None:
    """No line is wider than so many columns, and a long text continues below, in the same column."""
    columns, text = expected
    lines = world.out.splitlines()
    compare("too wide", "", [line for line in lines if len(line) > columns or line != line.rstrip()], [])
    first = next(number for number, line in enumerate(lines) if text[:5] in line)
    column = lines[first].index(text[:5])
    compare("text below", "starts", "".join(line[column:] for line in lines[first:]), text)


def is_a_picture(world: World, rest: str, text: str | None) -> None:
    compare("tag", "", ElementTree.fromstring(text or world.out).tag, "{http://www.w3.org/2000/svg}svg")


# Approvals ------------------------------------------------------------------------------------------------------------


def wait_until_expired(world: World, rest: str, request: str) -> None:
    store = SqliteApprovals(next(Path(world.known["tmp"], "state").rglob("approvals.sqlite")))
    while asyncio.run(store.find(request)).state(store.now()) != "expired":
        time.sleep(0.05)
    store.close()


def key_of_another_kind(world: World, rest: str, name: str) -> None:
    key = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    Path(name).touch(0o600)
    Path(name).write_bytes(key)


# Sources --------------------------------------------------------------------------------------------------------------


def the_import_path_stays(world: World, rest: str, command: str) -> None:
    before = list(sys.path)
    world.do_sh(command, "hello")
    compare("sys.path", "", sys.path, before)


def patch(world: World, rest: str, name: str) -> None:
    """Give what was printed to the program `patch`."""
    if shutil.which("patch") is None:
        pytest.skip("needs the program `patch`")
    subprocess.run(["patch", name], input=world.out, text=True, check=True, capture_output=True)


def declared_in(world: World, name: str, expected: dict[str, dict[str, str]]) -> None:
    """The tools of a source without problems, and what some of them declare."""
    source = read_tools(name)
    compare("problems", "", source.problems, ())
    compare("tools", "", [spec.name for spec in source.specs], list(expected))
    for spec in source.specs:
        for key, value in expected[spec.name].items():
            found = spec.needs.has(value) if key == "needs" else getattr(spec, key)
            compare(f"{key} of {spec.name}", "", found, True if key == "needs" else value)


def it_runs(world: World, rest: str, name: str) -> None:
    exec(compile(Path(name).read_text("utf-8"), name, "exec"), {"__name__": "odd"})


# Repositories ---------------------------------------------------------------------------------------------------------

SHARED = """tools:
  look: {needs: ["network:*:*"], effect: read_only, sandbox: restricted}
  put: {needs: ["fs:write:/out"], effect: write_limited, sandbox: restricted}
"""
AGENT = """agent: %s
capabilities:
  tools: [%s]
  max_side_effect_class: write_limited
  destinations: {allow: [%s]}
  fs_reach: {write: [/out]}
"""


def repository(world: World, rest: str, nothing: None) -> None:
    """Two commits: the first has one agent, the second widens it and adds another."""
    Path("licet.yaml").write_text(SHARED)
    Path("compose.yaml").write_text("services: {}\n")
    Path("one.yaml").write_text(AGENT % ("one", "look", "a.example"))
    for command in ("init -q -b main .", "add .", "commit -qm first"):
        world.do_git(command, None)
    Path("one.yaml").write_text(AGENT % ("one", "look", "a.example, b.example"))
    Path("two.yaml").write_text(AGENT % ("two", "put", "c.example"))
    for command in ("add .", "commit -qm second"):
        world.do_git(command, None)


# The organisation -----------------------------------------------------------------------------------------------------


def organisation(world: World, rest: str, text: str) -> None:
    world.known["organisation"] = str(put(world.patch, Path(world.known["tmp"]), text))


def names_the_file_below(world: World, rest: str, nothing: None) -> None:
    """The table may break its path into several lines."""
    below = re.sub(r"\s", "", world.out.partition("\nunder ")[2])
    compare("below `under`", "has", below, world.known["organisation"])


def at_a_terminal(world: World, rest: str, expected: Any) -> None:
    """Runs a command at a terminal, where `answer` is typed once it asks, after the steps of `meanwhile`."""
    expected = dict(expected or {})
    answer, meanwhile = expected.pop("answer", "y"), expected.pop("meanwhile", {})

    def do_meanwhile() -> None:
        for verb, value in meanwhile.items():
            world.step(Step(0, verb, value))

    talk = ((b"[y/N]",), f"{answer}\n".encode())
    code, said = at_terminal(world.words(rest), talk, meanwhile=do_meanwhile)
    world.answer(code, said.replace("\r\n", "\n"), "", said, expected)


VERBS: dict[str, Callable[[World, str, Any], None]] = {
    "organisation": organisation,
    "terminal": at_a_terminal,
    'names the file below "under"': names_the_file_below,
    "places": places,
    "files in": files_in,
    "it accepts": it_accepts,
    "agents with examples": agents_with_examples,
    "fits into": fits_into,
    "is a picture": is_a_picture,
    "wait until expired": wait_until_expired,
    "key of another kind": key_of_another_kind,
    "the import path stays": the_import_path_stays,
    "patch": patch,
    "declared in": declared_in,
    "it runs": it_runs,
    "repository": repository,
    "kept calls": kept_calls,
    "decisions alone have no code": decisions_alone_have_no_code,
    "new key": new_key,
    "state directory": find_state,
    "not as root": not_as_root,
    "formats": formats,
    "installed": installed,
    "fits": fits,
    "schema accepts": schema_accepts,
    "every line is needed": every_line_is_needed,
    "without comments": without_comments,
}
