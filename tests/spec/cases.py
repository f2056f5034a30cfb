"""The cases of the YAML files here, as values: worlds (files on disk), a question, and the answer that must come."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml

from licet import ManifestError, load_manifest
from licet.core.algebra.rules import Use
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.request import Approval, Request, Usage
from licet.core.policy.connector import ConnectorRef
from licet.core.policy.layer import EffectClass, Level
from licet.core.policy.manifest import Manifest
from licet.core.policy.tool import ToolSpec
from licet.policy_files.trust import accept
from pins import give_standing

HERE = Path(__file__).parent
HOME = "/home/somebody"
# One file for each of the documents that licet answers to, named after its subject.
DOCUMENTS = tuple(
    f"{name}.yaml"
    for name in (
        "why_capabilities",
        "tool_isolation",
        "tool_capabilities",
        "capability_system",
        "capability_manifests",
    )
)
MANIFEST, PERSONALITY = "manifest.yaml", "personality.yaml"
SESSION = "s-1"
_APPROVES = ("write: manifest", "approval: manifest")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Some files, given in place or by the name of a world, or both: then the given ones win."""

    name: str
    world: str = ""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    pinned: bool = True  # the policy is in the trust list, so that it can approve writes
    standing: list[str] = field(default_factory=list)  # the deletes that a standing approval covers, if there is one

    def write(self, place: Path) -> str | None:
        """Put the files on disk and return the name of the personality, if there is one."""
        for name, text in self.files.items():
            (place / name).write_bytes(text.encode() if isinstance(text, str) else text)
        personality = PERSONALITY if PERSONALITY in self.files else None
        if self.pinned and any(word in str(text) for text in self.files.values() for word in _APPROVES):
            with suppress(ManifestError):
                digest = load_manifest(place / MANIFEST, personality=personality and place / personality).digest
                accept(place / MANIFEST, digest, {}, datetime.now(UTC))
        if self.standing:
            give_standing(place / MANIFEST, self.standing)
        return personality


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(World):
    """One question to a manifest: may this tool be called, or do this?"""

    tool: str
    verdict: str
    use: str = ""
    reason: str = ""
    rules: list[str] | None = None
    fix: list[str] | None = None
    foreseen: Mapping[str, str] = field(default_factory=dict)  # rule -> fix: what `explain` knows of later steps
    arguments: str = ""
    asked: tuple[str, ...] = ()  # the arguments with a value that the policy asks about
    usage: Mapping[str, Any] = field(default_factory=dict)

    def request(self, place: Path) -> Request:
        """The call that the case is about."""
        uses = (Use(filled(self.use, place)),) if self.use else ()
        return Request(self.tool, uses, SESSION, self.arguments, asked=tuple(self.asked))

    def spent(self, manifest: Manifest) -> Usage:
        """What the session has already spent and settled."""
        given = dict(self.usage)
        approved = frozenset(
            Approval(**({"manifest": manifest.digest, "session": SESSION} | one)) for one in given.pop("approved", ())
        )
        spent, today = Decimal(given.pop("cost_usd", 0)), Decimal(given.pop("cost_usd_today", 0))
        of_tool = {tool: Decimal(cost) for tool, cost in given.pop("cost_usd_of_tool", {}).items()}
        bundles = {name: _usage(held) for name, held in given.pop("bundles", {}).items()}
        return Usage(
            approved=approved, cost_usd=spent, cost_usd_today=today, cost_usd_of_tool=of_tool, bundles=bundles, **given
        )


def _usage(given: Mapping[str, Any]) -> Usage:
    """What the tools of one bundle have spent together."""
    money = {key: Decimal(value) for key, value in given.items() if key.startswith("cost_")}
    return Usage(**{**given, **money})


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration(World):
    """One tool `t`, and everything of it that does not fit."""

    needs: list[str]
    misfits: list[list[str]]
    optional: list[str] = field(default_factory=list)
    effect: EffectClass | None = "read_only"
    sandbox: Level | None = "restricted"
    connector: str = ""
    runs_at: str = ""

    @property
    def spec(self) -> ToolSpec:
        """The tool."""
        connector = ConnectorRef.parse(self.connector) if self.connector else None
        return ToolSpec(
            "t", CapabilitySet(self.needs), self.effect, self.sandbox, connector, optional=CapabilitySet(self.optional)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble(World):
    """Files, and everything that is wrong with them."""

    problems: list[Mapping[str, str]]
    check: str = MANIFEST


def filled(text: str, place: Path) -> str:
    """Text of a case with this machine's directories in it."""
    return text.replace("${workdir}", str(place)).replace("~/", f"{HOME}/")


Kind = TypeVar("Kind", bound=World)


def cases(kind: type[Kind], *files: str, key: str = "cases") -> Iterator[Kind]:
    """The cases of some files of this directory; a misspelled key raises."""
    for file in files:
        content = _content(file)
        assert content.keys() <= {"worlds", "cases", "registrations"}
        for given in content.get(key, ()):
            case = kind(**given)
            shared = content["worlds"][case.world] if case.world else {}
            yield replace(case, files={**shared, **case.files})


@cache
def _content(file: str) -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return cast(dict[str, Any], yaml.load((HERE / file).read_text("utf-8"), Loader=loader))
