"""Combines policy documents (a manifest, a workspace, a personality) into one manifest.

A document may come from a file (`load`) or from Python data (`data`). Both use this module.
"""

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from licet.core.algebra.capability import capability
from licet.core.algebra.domains import DOMAINS
from licet.core.decision.admission import bundle_problems
from licet.core.origin import Origin, Problem
from licet.core.policy.layer import EVERY_DOMAIN, Layer, Rule
from licet.core.policy.manifest import Manifest
from licet.policy_files.containers import check
from licet.policy_files.nodes import Mapping, Node, Scalar
from licet.policy_files.public_suffix import suffix_problems
from licet.policy_files.reader import read_manifest, read_personality
from licet.policy_files.schema import FORMAT, SHAPES, WORKSPACE_FIELDS
from licet.policy_files.shapes import Located, number_of

Kind = Literal["workspace", "manifest", "personality", "organisation"]


def a_kind(kind: Kind) -> str:
    """A kind of document with its article."""
    return f"{'an' if kind == 'organisation' else 'a'} {kind}"


class PolicyDocument(Struct, frozen=True):
    """The result of reading a policy file: its kind, all problems in order, and the manifest if there are no errors."""

    kind: Kind
    manifest: Manifest | None
    problems: tuple[Problem, ...]
    partial: Manifest | None = None  # what could be read in spite of errors; only for finding more problems

    def __post_init__(self) -> None:
        placed = sorted(
            dict.fromkeys(self.problems), key=lambda one: (one.origin.file, one.origin.line, one.origin.column)
        )
        force_setattr(self, "problems", tuple(placed))

    @property
    def sound(self) -> bool:
        """Whether there are no errors; warnings do not count."""
        return all(problem.severity == "warning" for problem in self.problems)


class NewerFormat(Exception):
    """A document of a newer format. No other problem is reported for it, since this version would misread it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


class Document(Struct, frozen=True):
    """One checked document; `content` is None if it could not be read."""

    origin: Origin  # of its start
    kind: Kind
    content: Located[Any] | None

    @property
    def name(self) -> str:
        """The path of the file, or a phrase such as `the workspace data`."""
        return self.origin.file

    @property
    def workspace_keys(self) -> list[str]:
        """Its keys that belong to a workspace; a manifest may have them, too."""
        return [key for key in WORKSPACE_FIELDS if self.content is not None and key in self.content.value]

    def wrong_kind(self, expected: str) -> Problem:
        """The problem of a document whose kind is not the expected one."""
        return Problem(self.origin, a_kind(self.kind), expected)


def checked_document(origin: Origin, node: Node | None, problems: list[Problem], kind: Kind | None = None) -> Document:
    """Check a document against the schema of its kind. If the kind is not given, its keys tell it."""
    kind = kind or kind_of(node)
    return Document(origin, kind, None if node is None else check(SHAPES[kind], node, problems))


def kind_of(node: Node | None) -> Kind:
    keys = node.entries.keys() if isinstance(node, Mapping) else set()
    if keys & {"id", "toolset", "safety"}:
        return "personality"
    if keys & {"agent", "capabilities"} or not keys & WORKSPACE_FIELDS.keys():
        return "manifest"
    return "workspace"


def refuse_newer(node: Node | None) -> None:
    """Raise `NewerFormat` if a document is written for a newer version of licet."""
    entry = node.entries.get("licet") if isinstance(node, Mapping) else None
    if entry is None or not isinstance(entry.node, Scalar):
        return
    number = number_of(entry.node)
    if number is not None and number > FORMAT:
        found, expected = f"format {entry.node.text}", f"format {FORMAT}, the newest that this licet reads"
        raise NewerFormat(Problem(entry.key_origin, found, expected, "upgrade licet, or write the file for this one"))


def workspace_conflicts(main: Document, shared: Document) -> Iterator[Problem]:
    """A problem if a manifest has workspace keys, although there is a separate workspace."""
    if main.kind == "manifest" and main.content is not None and (own := main.workspace_keys):
        origin = main.content.value.get(own[0], main.content).key_origin or main.content.origin
        name = shared.name.rpartition("/")[2]
        expected = f"workspace keys in one place, here or in {name}"
        hint = f"move it to {name}, or remove {name}: its rules for all agents would not apply here"
        yield Problem(origin, f"the workspace key `{own[0]}` although there is a separate workspace", expected, hint)


def combined(
    main: Document, shared: Document | None, second: Document | None, problems: list[Problem]
) -> Manifest | None:
    """Read a manifest with its workspace, and narrow it by a personality; None if a document is unreadable.

    If there are problems, the result is incomplete and must be used only to find more problems.
    """
    documents = {one.name: one for one in (main, shared, second) if one is not None}
    manifest: Manifest | None = None
    workspace = None if shared is None else shared.content
    if main.content is not None and (shared is None or workspace is not None):
        read = read_personality if main.kind == "personality" else read_manifest
        manifest = read(main.content, workspace, problems)
    if second is not None and second.content is not None and second.kind != "personality":
        problems.append(second.wrong_kind("a personality"))
        del documents[second.name]
    elif second is not None and second.content is not None:
        other = read_personality(second.content, workspace, problems)
        manifest = manifest.meet(other) if manifest is not None else None
    for one in documents.values():
        problems += suffix_problems(one.content)
    if manifest is not None and main.kind == "manifest":  # a personality alone: the manifest may assign the bundle
        problems += bundle_problems(manifest)
    return manifest


def with_protected_paths(manifest: Manifest, closed: dict[str, str]) -> Manifest:
    """The manifest with a layer that denies writing these paths to every tool; `closed` maps each to the reason."""
    rules = tuple(
        Rule(capability("fs", DOMAINS["fs"].actions[action], key, None), manifest.origin, why)
        for key, why in closed.items()
        for action in ("write", "delete")
    )
    layer = Layer("protected paths", "licet itself", manifest.origin, denies=rules, silent=EVERY_DOMAIN)
    return replace(manifest, layers=(*manifest.layers, layer))
