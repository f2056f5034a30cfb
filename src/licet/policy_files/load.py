"""Loads policy files: a workspace, a manifest and a personality, in YAML or JSON.

Everything is checked before anything is used, and all problems are reported at once. `schema` has the allowed keys and
values, `manifest_reader` gives them their meaning.

Also finds the manifests of agents in a directory, and reads test files: the cases that a policy must decide as they
say. These are the YAML and JSON files in `.licet/tests`; a file elsewhere must name its policy.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import get_args

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.scope import TOP, Malformed, path_key, visible
from licet.core.decision.foreseen import address_problems, pair_problems, quorum_problems
from licet.core.decision.request import Reason
from licet.core.policy.inspection import expanded_file
from licet.core.policy.layer import CODE, KEY_FILE, POLICY, SECOND_CODE
from licet.core.policy.manifest import Manifest, every_key_file
from licet.core.review.examples import Case
from licet.core.review.risk import ceiling_problems
from licet.core.values import Origin, Problem
from licet.errors import ManifestError
from licet.own_files import is_there, open_regular, read_most
from licet.policy_files.checks import suffix_problems
from licet.policy_files.limits import MOST_BYTES, MOST_FOLLOWED, MOST_FOUND
from licet.policy_files.manifest_reader import (
    Document,
    NewerFormat,
    PolicyDocument,
    checked_document,
    combined,
    refuse_newer,
    with_protected_paths,
    workspace_conflicts,
)
from licet.policy_files.nodes import Mapping, Node, read_nodes
from licet.policy_files.organisation import (
    machine_file,
    machine_organisation,
    organisation_and_problems,
    under_organisation,
)
from licet.policy_files.policy_paths import (
    POLICY_DIRECTORY,
    SUFFIXES,
    WORKSPACE_FILE,
    PolicyDetector,
    home_directory,
    names_of_policy,
    policies_above,
    policies_below,
    policy_paths,
    policy_root,
)
from licet.policy_files.schema import FORMAT_FIELDS, NAME, SHAPES, USE, foreign
from licet.policy_files.server_tools import with_server_tools
from licet.policy_files.shapes import AnyJson, Field, ListOf, MappingOf, OneOf, Record, TextShape, check
from licet.policy_files.trust import trusted_paths, with_pin
from licet.policy_files.workspace_reader import Value, declarations, plain, shared_layers, workspace_layer
from licet.source.finder import tool_files

__all__ = ["PolicyDocument", "is_agent_policy", "load_manifest", "read_made", "read_policy"]


def load_manifest(
    path: str | Path,
    workspace: str | Path | None = None,
    personality: str | Path | None = None,
    *,
    organisation: str | Path | None = None,
) -> Manifest:
    """Load an agent's manifest and the `licet.yaml` next to it, or raise `ManifestError` with all errors.

    The organisation of this machine narrows it, as every `Gate` does; `organisation` names a second file, to try it.
    """
    return under_organisation(load_own_manifest(path, workspace, personality), organisation)


def load_own_manifest(
    path: str | Path, workspace: str | Path | None = None, personality: str | Path | None = None
) -> Manifest:
    """Load what the files of an agent say, without the organisation above it; every gate narrows it by that."""
    policy = read_policy(path, workspace, personality)
    if not policy.sound or policy.manifest is None:
        raise ManifestError(problem for problem in policy.problems if problem.severity == "error")
    return policy.manifest


def read_policy(
    path: str | Path,
    workspace: str | Path | None = None,
    personality: str | Path | None = None,
    *,
    draft: str | None = None,
) -> PolicyDocument:
    """Read a policy file of any kind, with its workspace and personality; problems are returned, not raised.

    A `draft` is read in place of what is in the file, which need not exist yet.
    """
    try:
        return _read_policy(path, workspace, personality, draft)
    except NewerFormat as newer:
        return PolicyDocument("manifest", None, (newer.problem,))


def _read_policy(
    path: str | Path, workspace: str | Path | None, personality: str | Path | None, draft: str | None
) -> PolicyDocument:
    problems: list[Problem] = []
    if Path(path).stem == "organisation" and draft is None:
        return _organisation_alone(Path(path))
    file = _read(Path(path), problems, draft)
    if file.kind == "workspace":
        if workspace is not None or personality is not None:
            problems.append(file.wrong_kind("a manifest or a personality"))
        problems += suffix_problems(file.content)
        partial = _workspace_alone(file, problems)
        return PolicyDocument("workspace", None, tuple(problems), partial)
    shared = _workspace(file, workspace, problems)
    second = None if personality is None else _read(Path(personality), problems)
    manifest = combined(file, shared, second, problems)
    if manifest is not None:
        used = (file, shared, second if second is not None and second.kind == "personality" else None)
        names = tuple(dict.fromkeys(one.name for one in used if one is not None and one.content is not None))
        manifest = _protected(replace(manifest, files=names), problems)
        assigned = {admission.bundle for admissions in manifest.admissions.values() for admission in admissions}
        bundles = shared_layers(shared.content.value, but=assigned) if shared is not None and shared.content else ()
        problems += (*address_problems(manifest, bundles), *ceiling_problems(manifest))
        problems += (*quorum_problems(manifest), *pair_problems(manifest), *directory_problems(manifest))
        problems += socket_problems(manifest)
    sound = all(problem.severity == "warning" for problem in problems)
    if manifest is not None and sound:
        manifest = with_pin(manifest, path)
        manifest = with_server_tools(manifest) if manifest.servers else manifest
        problems += [manifest.lock_problem] if manifest.lock_problem is not None else []
    return PolicyDocument(file.kind, manifest if sound else None, tuple(problems), manifest)


def directory_problems(manifest: Manifest) -> Iterator[Problem]:
    """Directories where a program is expected: the path of a program is exact, so such a rule would allow nothing."""
    named = [(rule.capability, rule.origin) for layer in manifest.layers for rule in layer.allows]
    named += [(need, tool.origin) for tool in manifest.tools.values() for need in tool.needs.allow if tool.origin]
    for rule, origin in dict.fromkeys(named):
        if rule.domain == "process" and rule.key.startswith("/") and os.path.isdir(rule.key):
            found = f"the directory `{visible(rule.key)}`"
            hint = "name each program that licet itself may start; what these start in turn needs no line"
            yield Problem(origin, found, "the name of a program, or its path, which covers nothing below it", hint)


def socket_problems(manifest: Manifest) -> Iterator[Problem]:
    """Lines that allow every unix socket: among them are those that give root on this machine, so each is named."""
    rules = [rule for layer in manifest.layers for rule in layer.allows if rule.capability.domain == "socket"]
    for rule in dict.fromkeys(rules):
        if rule.capability.key == TOP:
            hint = "name each, such as `socket:connect:/run/postgresql/.s.PGSQL.5432`"
            yield Problem(rule.origin, f"`{rule.capability}`", "the exact path of a socket", hint)


def _organisation_alone(path: Path) -> PolicyDocument:
    """An organisation file is known by its name, since its keys are those of other files."""
    try:
        if os.path.abspath(path) == machine_file() and os.path.lexists(path):
            machine_organisation()  # who owns it counts too
        _, problems = organisation_and_problems(path)
    except ManifestError as wrong:
        problems = wrong.problems
    return PolicyDocument("organisation", None, problems)


def read_made(
    text: str, name: str, directory: str, written: Sequence[str] = (), trusted: dict[str, str] | None = None
) -> PolicyDocument:
    """Read the text of a manifest that is in no file; messages call it `name`. Nothing pins it.

    There is no workspace and no lock next to it. No grant writes policy: what this user has accepted, what is or would
    be found in `directory`, what is in and below the `written` paths, and the code of the tools that these name; nor
    the `trusted` paths, each with the reason.
    """
    problems: list[Problem] = []
    node, wrong = read_nodes(text.encode("utf-8", "surrogatepass"), name)
    problems += wrong
    file = checked_document(Origin(name, 1, 1), node, problems)
    manifest = combined(file, file, None, problems)
    if manifest is not None:
        found = policies_below(written)
        if len(found) > MOST_FOUND:
            text = f"more than {MOST_FOUND} policies below the paths to write"
            problems.append(Problem(manifest.origin, text, "smaller directories"))
        manifest = with_protected_paths(
            manifest, {**(trusted or {}), **_closed_to_made(directory, written, found[:MOST_FOUND])}
        )
        problems += (*address_problems(manifest), *ceiling_problems(manifest))
    sound = all(problem.severity == "warning" for problem in problems)
    return PolicyDocument(file.kind, manifest if sound else None, tuple(problems), manifest)


def _closed_to_made(directory: str, written: Sequence[str], found: Sequence[str]) -> dict[str, str]:
    """The paths that are closed to a manifest in no file, each with the reason."""
    here = os.path.join(directory, WORKSPACE_FILE)
    closed = policy_paths((here, *found), trusted_paths()) if written else ()
    # The code of a policy may be in a written directory that the policy itself is not in.
    files = filter(os.path.isfile, dict.fromkeys((*closed, *policies_above(written))))
    followed = islice((path for path in files if path.lower().endswith(SUFFIXES)), MOST_FOLLOWED)
    code = dict(one for path in followed for one in _named_by(Path(path)))
    names = (name for tree in written for name in names_of_policy(tree, directory))
    return {**code, **dict.fromkeys((*closed, *names), POLICY)}


def _named_by(path: Path) -> Iterator[tuple[str, str]]:
    """The files with keys that a policy names, and the code of its tools, with the project files that it imports."""
    policy = read_policy(path)
    manifest = policy.manifest or policy.partial
    if manifest is None:
        return
    home = home_directory()
    for file in every_key_file(manifest):
        if home or not file.startswith("~"):
            real = expanded_file(file, str(policy_root(path)), home)
            yield from ((one, KEY_FILE) for one in (real, os.path.realpath(real)))
    references = [reference for reference, _ in manifest.sources.values()]
    if references:  # the code that follows imports is loaded only if there is source
        from licet.source.project import project_modules

        root = str(policy_root(path))
        yield from tool_files(references, root)
        for place, refused in project_modules(references, (root,)).closed():
            yield place, SECOND_CODE if refused else CODE


def _workspace_alone(file: Document, problems: list[Problem]) -> Manifest | None:
    """A manifest with what a workspace alone gives: the sources of tools, and its own and its bundles' hosts."""
    if file.content is None:
        return None
    shared = file.content.value
    _, sources = declarations(shared, problems)
    layers = (*workspace_layer(shared, []), *shared_layers(shared))
    return Manifest(agent="", origin=file.content.origin, layers=layers, sources=sources, files=(file.name,))


def _workspace(file: Document, given: str | Path | None, problems: list[Problem]) -> Document | None:
    """The workspace: the one that was named, `licet.yaml` next to the file, or the file itself; never from a parent."""
    if given is None:
        path = Path(file.name)
        neighbour = path.parent / WORKSPACE_FILE
        if path.name == WORKSPACE_FILE or not is_there(neighbour):
            return file if file.kind == "manifest" else None
        if file.workspace_keys and file.kind == "manifest" and is_agent_policy(neighbour):
            return file  # two independent policies with one file each, such as two versions
        given = neighbour
    shared = _read(Path(given), problems)
    if shared.kind == "personality":
        problems.append(shared.wrong_kind("a workspace"))
    problems += workspace_conflicts(file, shared)
    return shared


def is_agent_policy(path: Path) -> bool:
    """Whether a file is the manifest of an agent, and not only a workspace."""
    file = _read(path, [])
    return file.content is not None and file.kind == "manifest" and "agent" in file.content.value


def read_bytes(path: Path, what: str, problems: list[Problem]) -> bytes | None:
    """The content of a file; None, and a problem, if it cannot be read. `what` is the kind of file that is expected."""
    try:
        with open_regular(path) as fd:
            return read_most(fd, MOST_BYTES + 1)  # one more, so that `read_nodes` reports a file that is too long
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        why = (getattr(error, "strerror", None) or "an unreadable path").lower()
        absent = isinstance(error, FileNotFoundError) or (os.path.lexists(path) and not is_there(path))
        missing = "no file there" if absent else f"a file that cannot be read ({why})"
        problems.append(Problem(Origin(str(path), 1, 1), missing, what))
        return None


def _read(path: Path, problems: list[Problem], draft: str | None = None) -> Document:
    origin = Origin(str(path), 1, 1)
    # A lone surrogate makes a text that is not UTF-8, which `read_nodes` reports.
    data = read_bytes(path, "a policy file", problems) if draft is None else draft.encode("utf-8", "surrogatepass")
    if data is None:
        return Document(origin, "manifest", None)
    node, found = read_nodes(data, str(path))
    refuse_newer(node)
    if other := foreign(node, data, found):
        problems.append(Problem(origin, other, f"a policy file, {SHAPES['manifest'].expected}"))
        return Document(origin, "manifest", None)
    problems += found
    return checked_document(origin, node, problems)


def _protected(manifest: Manifest, problems: list[Problem]) -> Manifest:
    """The manifest with a layer that denies every tool to write policy files and the code of tools."""
    spelled = [(path, file) for file in manifest.files for path in (os.path.abspath(file), os.path.realpath(file))]
    for path, file in spelled:
        try:
            path_key(path)
        except Malformed as wrong:
            found, expected = f"the path {visible(path)}", f"a policy file that a rule can name: {wrong.expected}"
            problems.append(Problem(Origin(file, 1, 1), found, expected))
    closed = dict.fromkeys(policy_paths(manifest.files, trusted_paths()), POLICY)
    # A tool that could write the code of a tool could do anything at the next start.
    if sources := [reference for reference, _ in manifest.sources.values()]:
        roots = dict.fromkeys(str(policy_root(Path(path))) for path, _ in spelled)
        closed = {**dict(code for root in roots for code in tool_files(sources, root)), **closed}
    return with_protected_paths(manifest, closed)


def manifests_in(directory: Path) -> tuple[Path, ...]:
    """The manifests in a directory and its `.licet`; `OSError` if one of the two cannot be read.

    A file that may be a manifest, but is broken, counts: whoever reviews it must be told.
    """
    detector, found = PolicyDetector(), []
    for folder in (directory, directory / POLICY_DIRECTORY):
        try:
            names = sorted(name for name in os.listdir(folder) if name.lower().endswith(SUFFIXES))
        except (FileNotFoundError, NotADirectoryError):
            continue
        paths = [folder / name for name in names]
        found += [path for path in paths if is_agent_policy(path) or _is_broken(path, detector)]
    return tuple(found)


def _is_broken(path: Path, detector: PolicyDetector) -> bool:
    policy = read_policy(path)
    return policy.kind == "manifest" and policy.manifest is None and detector.is_policy(str(path))


TESTS = "tests"  # the directory of test files, below `.licet`
_EXPECTED = "a test file: `cases`, each with `tool` and `verdict`"
_VERDICTS = ("allow", "deny", "ask")
_REASONS = tuple(reason for reason in get_args(Reason) if reason != "ALLOWED")

_ARGUMENT = TextShape(expected="the name of an argument")
CASE = Record(
    {
        "name": Field(TextShape(expected="a sentence about the case")),
        "tool": Field(NAME, required=True),
        "use": Field(USE),
        "args": Field(MappingOf(_ARGUMENT, AnyJson()), description="the arguments of a call, checked by the policy"),
        "verdict": Field(OneOf(_VERDICTS), required=True),
        "reason": Field(OneOf(_REASONS), description="the reason code that a denied case must have"),
    }
)
CASES = Record(
    {
        "policy": Field(
            TextShape(expected="the path of a manifest, from the directory of this file"),
            description="the manifest that the cases are about; in `.licet/tests`, that of the project if left out",
        ),
        "cases": Field(ListOf(CASE), required=True, description="calls and uses, each with the verdict it must get"),
        **FORMAT_FIELDS,
    }
)
DESCRIPTION = "A licet test file: cases that a policy must decide as they say."


class CaseFile(Struct, frozen=True):
    """A test file. `policy` is the path of the manifest that its cases are about."""

    policy: Path
    cases: tuple[Case, ...]


def is_case_file(path: Path) -> bool:
    """Whether a file has the key `cases` at its top level, which no policy file has."""
    data = read_bytes(path, _EXPECTED, [])
    return data is not None and _has_cases(read_nodes(data, str(path))[0])


def read_case_file(path: Path, problems: list[Problem]) -> CaseFile | None:
    """Read a test file; None, and at least one problem, if anything in it is wrong."""
    found: list[Problem] = []
    if (data := read_bytes(path, _EXPECTED, problems)) is None:
        return None
    node, syntax = read_nodes(data, str(path))
    try:
        refuse_newer(node)
    except NewerFormat as newer:
        problems.append(newer.problem)
        return None
    if node is None or not _has_cases(node):
        # Outside `.licet/tests` it may be any file, also one with secrets: nothing of it is quoted.
        other = Problem(Origin(str(path), 1, 1), "another file", _EXPECTED)
        problems.append(syntax[0] if syntax and _in_tests(path) else other)
        return None
    found += syntax
    content = check(CASES, node, found)
    policy = None if content is None else _policy(path, content, found)
    cases = () if content is None else tuple(_cases(content, found))
    problems += found
    return None if found or policy is None else CaseFile(policy, cases)


def case_files(policy: Path) -> tuple[Path, ...]:
    """The test files of the policy's project, sorted by name."""
    folder = policy_root(policy) / POLICY_DIRECTORY / TESTS
    try:
        found = sorted(one for one in folder.iterdir() if one.suffix in SUFFIXES and one.is_file())
    except OSError:
        return ()
    return tuple(one for one in found if not one.name.endswith(".schema.json"))  # of `licet schema`


def policy_of(root: Path) -> Path | None:
    """The policy file of a project: `.licet/licet.yaml`, or else `licet.yaml`; None if there is neither."""
    places = (root / POLICY_DIRECTORY / WORKSPACE_FILE, root / WORKSPACE_FILE)
    return next(filter(os.path.lexists, places), None)


def _has_cases(node: Node | None) -> bool:
    return isinstance(node, Mapping) and "cases" in node.entries


def _in_tests(path: Path) -> bool:
    folder = path.absolute().parent
    return folder.name == TESTS and folder.parent.name == POLICY_DIRECTORY


def _policy(path: Path, content: Value, problems: list[Problem]) -> Path | None:
    if (named := content.value.get("policy")) is not None:
        return Path(os.path.normpath(path.parent / named.value))
    if "policy" in content.value:  # a value that was refused
        return None
    root = Path(os.path.normpath(path.parent / ".." / ".."))
    found = policy_of(root) if _in_tests(path) else None
    if found is None:
        hint = "name it, from the directory of this file: `policy: ../research.yaml`"
        problems.append(Problem(content.origin, "no `policy`", "the manifest that the cases are about", hint))
    return found


def _cases(content: Value, problems: list[Problem]) -> Iterator[Case]:
    for item in plain(content.value, "cases", ()):
        given = item.value
        args = given.get("args")
        verdict, reason = plain(given, "verdict", ""), given.get("reason")
        if reason is not None and verdict != "deny":
            found, expected = (
                f"`reason` with the verdict {verdict}",
                "`verdict: deny`, since only a refusal has a reason",
            )
            problems.append(Problem(reason.key_origin or reason.origin, found, expected))
        yield Case(
            item.origin,
            plain(given, "tool", ""),
            (verdict,),
            str(plain(given, "use", "")),
            None if args is None else {name: located.value for name, located in args.value.items()},
            plain(given, "reason", ""),
            plain(given, "name", ""),
        )
