"""Policy documents (a manifest, a workspace, a personality), put together into one manifest.

Where a document comes from, a file or Python data, is not known here; neither is what no grant may write.
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

Kind = Literal["workspace", "manifest", "personality"]


class PolicyDocument(Struct, frozen=True):
    """What a policy file holds: its kind, every problem in order, and the manifest if there is one and it is sound."""

    kind: Kind
    manifest: Manifest | None
    problems: tuple[Problem, ...]
    partial: Manifest | None = None  # what could be read, to look for more that is wrong and for nothing else

    def __post_init__(self) -> None:
        placed = sorted(
            dict.fromkeys(self.problems), key=lambda one: (one.origin.file, one.origin.line, one.origin.column)
        )
        force_setattr(self, "problems", tuple(placed))

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong; warnings are not wrong."""
        return all(problem.severity == "warning" for problem in self.problems)


class NewerFormat(Exception):
    """A document of a format that this licet does not know: nothing else that it would say about it is reliable."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


class Document(Struct, frozen=True):
    """One checked document; without content, its problems say why."""

    origin: Origin  # of its start
    kind: Kind
    content: Located[Any] | None

    @property
    def name(self) -> str:
        """The file, or which data it is."""
        return self.origin.file

    @property
    def workspace_keys(self) -> list[str]:
        """The keys of a workspace that it has; a manifest may have them too."""
        return [key for key in WORKSPACE_FIELDS if self.content is not None and key in self.content.value]

    def wrong_kind(self, expected: str) -> Problem:
        """The problem of a document that stands where another kind is expected."""
        return Problem(self.origin, f"a {self.kind}", expected)


def checked_document(origin: Origin, node: Node | None, problems: list[Problem]) -> Document:
    """Check the nodes of a document by the keys of its kind."""
    kind = kind_of(node)
    return Document(origin, kind, None if node is None else check(SHAPES[kind], node, problems))


def kind_of(node: Node | None) -> Kind:
    """What a document is, by its keys."""
    keys = node.entries.keys() if isinstance(node, Mapping) else set()
    if keys & {"id", "toolset", "safety"}:
        return "personality"
    if keys & {"agent", "capabilities"} or not keys & WORKSPACE_FIELDS.keys():
        return "manifest"
    return "workspace"


def refuse_newer(node: Node | None) -> None:
    """Raise `NewerFormat` if a document is written for a later licet."""
    entry = node.entries.get("licet") if isinstance(node, Mapping) else None
    if entry is None or not isinstance(entry.node, Scalar):
        return
    number = number_of(entry.node)
    if number is not None and number > FORMAT:
        found, expected = f"format {entry.node.text}", f"format {FORMAT}, the newest that this licet reads"
        raise NewerFormat(Problem(entry.key_origin, found, expected, "upgrade licet, or write the file for this one"))


def two_workspaces(main: Document, shared: Document) -> Iterator[Problem]:
    """A problem if a manifest has workspace keys beside the workspace that it is read with."""
    if main.kind == "manifest" and main.content is not None and (own := main.workspace_keys):
        origin = main.content.value.get(own[0], main.content).key_origin or main.content.origin
        name = shared.name.rpartition("/")[2]
        expected = f"workspace keys in one place, here or in {name}"
        hint = f"move it there, or move {name} away: what it says to every agent would not hold here"
        yield Problem(origin, f"the workspace key `{own[0]}` beside a separate workspace", expected, hint)


def combined(
    main: Document, shared: Document | None, second: Document | None, problems: list[Problem]
) -> Manifest | None:
    """The manifest that a document says, read with a workspace and met with a personality; None if one is unreadable.

    With problems, it is what could be read: enough to look for more problems, and for nothing else.
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
    if manifest is not None:
        problems += bundle_problems(manifest)
    return manifest


def never_written(manifest: Manifest, closed: dict[str, str]) -> Manifest:
    """The manifest with a layer that keeps these paths from being written by any grant; each comes with the reason."""
    rules = tuple(
        Rule(capability("fs", DOMAINS["fs"].actions[action], key, None), manifest.origin, why)
        for key, why in closed.items()
        for action in ("write", "delete")
    )
    layer = Layer("policy files", "licet itself", manifest.origin, denies=rules, silent=EVERY_DOMAIN)
    return replace(manifest, layers=(*manifest.layers, layer))
