"""A manifest as a value: what one agent may touch, where each rule is written, and the digest of it all.

Files are read in `policy_files`. What one tool holds is computed in `decision/reach.py`, and one call is decided in
`decision/decide.py`.

The overlap of a manifest and a personality: the rules of both, and the tighter one of each two limits.

If a tool is in a bundle, one of the two must assign the bundle, and the other must assign it too or name the tool.

The meaning of a manifest as plain data, and its digest: both are equal for policies that mean the same.

The grant of `licet run -- CMD`: no tool declares it, so it needs everything that a program can use.
"""

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, Protocol

from msgspec.structs import replace

from licet.core.algebra.domains import PATH_DOMAINS
from licet.core.algebra.rules import Capability, InvalidUse, Use
from licet.core.algebra.scope import directory_key
from licet.core.algebra.set import CapabilitySet
from licet.core.late_pattern import late_pattern
from licet.core.policy.flow_terms import asked_words, expanded_flow, flow_paths, in_flow_order
from licet.core.policy.inspection import (
    expanded,
    expanded_file,
    is_inspected,
    met_inspect,
    places_of,
    stand_ins,
    stand_ins_document,
)
from licet.core.policy.keys import FLOW, INSPECT, STAND_INS, keys_digest, keys_under, met_keys
from licet.core.policy.layer import Layer, Rule, distinct, named_tcp
from licet.core.policy.manifest_fields import ManifestFields, Organisation
from licet.core.policy.servers import stand_ins_of, with_real_files
from licet.core.policy.terms import BUDGET_KEYS, Admission, stated_keys
from licet.core.policy.tool import ToolSpec
from licet.core.values import Origin, digest, plain

Admissions = Mapping[str, tuple[Admission, ...]]


def met_fields(one: ManifestFields, two: ManifestFields) -> dict[str, Any]:
    """The fields of the manifest that allows what both allow. All other fields are those of the first one.

    `ValueError` if both have a bundle of the same name with different terms.
    """
    admissions, unassigned = met_admissions(one, two)
    return {
        "loaded": None,
        "standing": None,
        "pinned": "",  # the result is a third policy, which nothing pins
        "lock_problem": one.lock_problem or two.lock_problem,
        "personality": two.personality or one.personality,
        "layers": distinct(met_layers(one, two, admissions) + met_layers(two, one, admissions)),
        "admissions": admissions,
        "unassigned": unassigned,
        "rosters": one.rosters + two.rosters,
        "tools": {**two.tools, **one.tools},
        "sources": {**two.sources, **one.sources},
        **met_keys(one, two),
        "examples": one.examples + two.examples,
        "files": one.files + two.files,
        "roots": {**two.roots, **one.roots},
        "places": {**two.places, **one.places, **_tighter_places(one, two)},
        "organisations": distinct(one.organisations + two.organisations),
        "key_files": distinct(every_key_file(one) + every_key_file(two)),
    }


def every_key_file(manifest: ManifestFields) -> tuple[str, ...]:
    """The files with keys that any part of a policy names: of the agent, a personality, a bundle or a server.

    Also one whose entry another part does not have, so that no program gets the key: nobody may replace the file.
    """
    placed = (*STAND_INS.of(manifest), *(one for bundle in manifest.bundles.values() for one in bundle.stand_ins or ()))
    placed += tuple(one for server in manifest.servers.values() for one in stand_ins_of(server))
    return tuple(dict.fromkeys((*manifest.key_files, *(one.file for one in placed if one.file))))


def narrowed_fields(manifest: ManifestFields, above: Organisation) -> dict[str, Any]:
    """The fields of a manifest that an organisation above it narrows. It admits no tool and allows nothing."""
    return {
        "layers": manifest.layers + above.layers,
        "admissions": _with_write_approval(manifest.admissions, above),
        "unassigned": _with_write_approval(manifest.unassigned, above),
        **keys_under(manifest, above),
        "places": {**manifest.places, **above.tightened(manifest.approvals, manifest.budget)},
        "organisations": (*manifest.organisations, above),
    }


def _with_write_approval(admissions: Admissions, above: Organisation) -> Admissions:
    """The admissions, and when the organisation wants writes to ask; the strictest counts.

    A tool whose admissions say nothing about it takes `approvals.write` of the manifest, which is narrowed too.
    """
    more = above.admission()
    return {
        tool: (*given, *more) if any(one.approval for one in given) else given for tool, given in admissions.items()
    }


def met_admissions(one: ManifestFields, two: ManifestFields) -> tuple[Admissions, Admissions]:
    """The admissions of the tools that both admit, and of tools that are named while no bundle of them is assigned."""
    admissions: dict[str, tuple[Admission, ...]] = {}
    unassigned: dict[str, tuple[Admission, ...]] = {}
    for tool in sorted({*one.admissions, *one.unassigned, *two.admissions, *two.unassigned}):
        if _admitted(one, two, tool):
            admissions[tool] = distinct(_admissions_of(one, tool) + _admissions_of(two, tool))
        elif tool in one.unassigned or tool in two.unassigned:
            unassigned[tool] = distinct(_admissions_of(one, tool) + _admissions_of(two, tool))
    return admissions, unassigned


def met_layers(manifest: ManifestFields, other: ManifestFields, admissions: Admissions) -> tuple[Layer, ...]:
    """The layers of one of the two, with `tool:call` rules for exactly the tools that both admit."""
    added = tuple(
        Rule(Capability(f"tool:call:{tool}"), manifest.unassigned[tool][0].origin, "capabilities.tools")
        for tool in admissions
        if tool not in manifest.admissions
    )
    dropped = {tool for tool in manifest.admissions.keys() & other.admissions.keys() if tool not in admissions}
    if not added and not dropped:
        return manifest.layers
    return tuple(
        replace(layer, allows=(*(rule for rule in layer.allows if not _admits(rule, dropped)), *added))
        if layer.kind in ("manifest", "personality")
        else layer
        for layer in manifest.layers
    )


def _admitted(one: ManifestFields, two: ManifestFields, tool: str) -> bool:
    mine, theirs = _assigned(one, tool), _assigned(two, tool)
    if not mine and not theirs:
        return tool in one.admissions and tool in two.admissions
    return bool(mine & theirs or (mine and _names(two, tool)) or (theirs and _names(one, tool)))


def _admissions_of(manifest: ManifestFields, tool: str) -> tuple[Admission, ...]:
    return manifest.admissions.get(tool) or manifest.unassigned.get(tool, ())


def _assigned(manifest: ManifestFields, tool: str) -> set[str]:
    return {admission.bundle for admission in manifest.admissions.get(tool, ()) if admission.bundle}


def _names(manifest: ManifestFields, tool: str) -> bool:
    """Whether a ceiling names a tool, and does not only assign a bundle that contains it."""
    listed = any(tool in roster.named for roster in manifest.rosters)
    return listed or any(not admission.bundle for admission in _admissions_of(manifest, tool))


def _admits(rule: Rule, tools: set[str]) -> bool:
    about = rule.capability
    return about.domain == "tool" and about.key in tools and rule.key.endswith("tools")


def _tighter_places(one: ManifestFields, two: ManifestFields) -> Mapping[str, Origin]:
    """Where the tighter value of each budget and limit is written."""
    found: dict[str, tuple[int | Decimal, Origin]] = {}
    for each in (one, two):
        limits = {key: getattr(each.budget, key) for key in BUDGET_KEYS}
        limits |= {f"limits.{key}": limit for key, limit in each.limits.items()}
        for key, limit in limits.items():
            if limit is not None and key in each.places and (key not in found or limit < found[key][0]):
                found[key] = limit, each.places[key]
    return {key: place for key, (_, place) in found.items()}


_ONE_WORD = late_pattern(r"[!#-~]+")  # visible ASCII without quotes


def manifest_digest(manifest: ManifestFields) -> str:
    """The digest of what a manifest means, including the parts of the workspace that it uses."""
    return digest(document(manifest))


def document(manifest: ManifestFields) -> dict[str, Any]:
    """The meaning of a manifest as JSON data, without file names, comments, order and notation."""
    used = manifest.admissions.keys()
    layers: dict[Layer, dict[str, Any]] = {}
    data: dict[str, Any] = plain(
        {
            "format": 1,
            "agent": manifest.agent,
            "version": manifest.version,
            "app": manifest.app,
            "personality": manifest.personality,
            "layers": [_layer(layer) for layer in manifest.layers if layer.kind != "protected paths"],
            "tools": {
                tool: [_admission(admission, layers) for admission in admissions]
                for tool, admissions in manifest.admissions.items()
            },
            "declared": {name: _spec(spec) for name, spec in manifest.tools.items() if name in used},
            "sources": {name: source for name, (source, _) in manifest.sources.items() if name in used},
            **keys_digest(manifest),
            "servers": {name: server_document(server) for name, server in manifest.servers.items()},
            **stated_keys(gateway_names=manifest.gateway_names or None),
            # Examples allow nothing, so they are no part of the meaning. The key stays: without examples it was empty,
            # and digests of such policies must stay valid.
            "examples": [],
        }
    )
    return data


def _layer(layer: Layer) -> dict[str, Any]:
    return {
        "allow": layer.allowed_texts(),
        "deny": [str(rule) for rule in layer.allowed.deny],
        # At class `write_limited` a rule that names `tcp` allows more than `*` does, so it is part of the meaning.
        "tcp": [str(rule) for rule in named_tcp(layer).allow],
    }


def _admission(admission: Admission, layers: dict[Layer, dict[str, Any]]) -> dict[str, Any]:
    # The tools of a bundle share its layer, which is converted once.
    if admission.layer and admission.layer not in layers:
        layers[admission.layer] = _layer(admission.layer)
    return {
        "bundle": admission.bundle,
        "effects": sorted({effect for effect, _ in admission.effects}),
        "levels": sorted({level for level, _ in admission.levels}),
        "destinations": layers[admission.layer] if admission.layer else None,
        "args": admission.args,
        "approval": admission.approval,
        "max_calls": admission.max_calls,
        **stated_keys(max_cost_usd=admission.max_cost_usd),
        "limits": admission.limits,
        **stated_keys(asked_by=admission.asked_by or None),
    }


def _spec(spec: ToolSpec) -> dict[str, Any]:
    return {
        "needs": [str(rule) for rule in spec.needs.allow],
        **stated_keys(optional=[str(rule) for rule in spec.optional.allow] or None),
        "effect": spec.effect,
        "sandbox": spec.sandbox,
        "connector": str(spec.connector) if spec.connector else None,
        "cost_usd": spec.cost_usd,
    }


# Values of a server that mean the same as a key that is left out.
_SAYS_NOTHING: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("headers", "limits", "client"), ({},)),
    **dict.fromkeys(("resources", "prompts", "code", "inspect"), ([],)),
    "sandbox": ("isolated",),
}


def server_document(server: Mapping[str, Any]) -> dict[str, Any]:
    """The meaning of a server as JSON data: rules in normal form, names sorted, missing keys as empty values."""
    stated = {key: value for key, value in plain(server).items() if value not in _SAYS_NOTHING.get(key, ())}
    data: dict[str, Any] = {"grants": [], "env": [], "secrets": {}, "tools": {}, **stated}
    data["grants"] = list(map(str, CapabilitySet(data["grants"])))
    data["env"] = sorted(set(data["env"]))
    placed = {name: secret for name, secret in data["secrets"].items() if isinstance(secret, Mapping)}
    data["secrets"] = {**data["secrets"], **stand_ins_document(stand_ins(placed))}
    data |= {"inspect": list(met_inspect(data["inspect"], ()))} if "inspect" in data else {}
    for key in ("resources", "prompts"):
        if isinstance(data.get(key), list):
            data[key] = sorted(set(data[key]))
    if "roots" in data.get("client", {}):
        data["client"] = {**data["client"], "roots": sorted(set(data["client"]["roots"]))}
    for tool in data["tools"].values():
        tool.update(stated_keys(needs=list(map(str, CapabilitySet(tool["needs"]))) if "needs" in tool else None))
        tool.update(stated_keys(optional=list(map(str, CapabilitySet(tool.pop("optional", ())))) or None))
        tool.update(stated_keys(asked_by=list(asked_words(tool.pop("asked_by", None))) or None))
        if "args" in tool:
            tool["args"] = {name: in_flow_order(rule) for name, rule in tool["args"].items()}
    return data


def command_text(words: Iterable[object]) -> str:
    """Write a command as one line. A word is quoted if it is empty or is not plain visible ASCII."""
    return " ".join(word if _ONE_WORD.fullmatch(word) else json.dumps(word) for word in map(str, words))


class PathText(Protocol):
    """A path object, such as `pathlib.Path`."""

    def __fspath__(self) -> str: ...


class Manifest(ManifestFields, frozen=True, kw_only=True, dict=True):
    """What one agent may touch. An empty manifest allows nothing."""

    loaded: "Manifest | None" = None  # the manifest as it was loaded, before tools and directories were filled in
    project: "Manifest | None" = None  # the manifest before an organisation narrowed it
    _data_reader: ClassVar["DataReader | None"] = None

    @classmethod
    def from_data(
        cls,
        data: Mapping[str, Any],
        workspace: Mapping[str, Any] | None = None,
        personality: Mapping[str, Any] | None = None,
        *,
        root: str | PathText | None = None,
    ) -> "Manifest":
        """Create a manifest from the keys of a policy file as plain data; `ManifestError` lists every problem.

        The checks and the digest are those of a file; places are JSON pointers. `root` is the directory of the code
        that `from:` names; without one, `from:` is refused.
        """
        if cls._data_reader is None:
            raise RuntimeError("the reader of policy data is not loaded: take `Manifest` from `licet`")
        return cls._data_reader(data, workspace, personality, root=root)

    @classmethod
    def read_data_with(cls, reader: "DataReader") -> "type[Manifest]":
        """Return the class with a reader for `from_data`. The front door calls this, since core reads no policy."""
        cls._data_reader = staticmethod(reader)
        return cls

    @cached_property
    def digest(self) -> str:
        """The digest of what the files mean; tools and directories that were filled in later do not change it."""
        return self.loaded.digest if self.loaded is not None else manifest_digest(self)

    def declare(self, specs: Iterable[ToolSpec], *, narrow: bool = False) -> "Manifest":
        """Return the manifest with more declared tools; `narrow` runs misfits at the tighter class and level."""
        tools = {**self.tools, **{spec.name: spec for spec in specs}}
        return replace(self, tools=tools, narrow=narrow or self.narrow, loaded=self.loaded or self)

    def expand(self, workdir: str, home: str) -> "Manifest":
        """Return the manifest with `${workdir}` and `~` replaced by real directories; the digest stays.

        An empty `home` means that there is none: `Malformed` if the manifest uses `~`.
        """
        tools = {
            name: replace(spec, needs=spec.needs.expand(workdir, home), optional=spec.optional.expand(workdir, home))
            for name, spec in self.tools.items()
        }
        layers = tuple(layer.expand(workdir, home) for layer in self.layers)
        places = {"${workdir}": directory_key(workdir), "~": directory_key(home) if home else ""}
        roots = {**self.roots, **{root: place for root, place in places.items() if root in self._roots_used()}}
        named = every_key_file(self) or FLOW.name in self.values
        files = self._with_files(workdir, home) if named else {}
        return replace(self, layers=layers, tools=tools, roots=roots, loaded=self.loaded or self, **files)

    def _with_files(self, workdir: str, home: str) -> dict[str, Any]:
        """The fields with files of stand-ins and what `flow:` names, which are then below real directories."""
        bundles = {
            name: bundle
            if bundle.stand_ins is None
            else replace(bundle, stand_ins=expanded(bundle.stand_ins, workdir, home))
            for name, bundle in self.bundles.items()
        }
        placed = expanded(STAND_INS.of(self), workdir, home)
        values = {**self.values, **({STAND_INS.name: placed} if placed else {})}
        servers = {name: with_real_files(server, workdir, home) for name, server in self.servers.items()}
        known = tuple(expanded_file(path, workdir, home) for path in self.key_files)
        if FLOW.name in values:
            values[FLOW.name] = expanded_flow(FLOW.of(self), workdir, home)
        return {"bundles": bundles, "values": values, "servers": servers, "key_files": known}

    def _roots_used(self) -> set[str]:
        rules = [rule.capability for layer in self.layers for rule in (*layer.allows, *layer.denies)]
        rules += [need for spec in self.tools.values() for need in spec.touches.allow]
        rules += [Capability(rule) for server in self.servers.values() for rule in server.get("grants", ())]
        files = {path.partition("/")[0] for path in (*every_key_file(self), *flow_paths(FLOW.of(self)))}
        return files | {rule.key.partition("/")[0] for rule in rules if rule.domain in PATH_DOMAINS}

    def meet(self, other: "Manifest") -> "Manifest":
        """Return the manifest that allows what both allow; it keeps the agent's name of this one.

        `other` is a personality. `ValueError` if both have a bundle of the same name with different terms.
        """
        met = replace(self, **met_fields(self, other))
        if not met.organisations:
            return met
        own = self.own.meet(other.own)
        return replace(met, loaded=own, project=own)

    def under(self, *above: Organisation) -> "Manifest":
        """Return the manifest narrowed by organisations; one that narrows it already adds nothing. The digest stays."""
        narrowed = self
        for one in above:
            if one in narrowed.organisations:
                continue
            fields = narrowed_fields(narrowed, one)
            narrowed = replace(narrowed, **fields, loaded=narrowed.loaded or narrowed, project=narrowed.own)
        return narrowed

    @property
    def own(self) -> "Manifest":
        """The manifest without what an organisation says: what its digest, a lock and `licet trust` are about."""
        return self.project or self


class DataReader(Protocol):
    """Reads a manifest from the keys of policy files as plain data."""

    def __call__(
        self,
        data: Mapping[str, Any],
        workspace: Mapping[str, Any] | None,
        personality: Mapping[str, Any] | None,
        *,
        root: str | PathText | None,
    ) -> Manifest: ...


COMMANDS = "licet run"  # no tool can have this name, since names have no spaces
PROGRAM = "run"  # what receipts call it
COMMAND_NEEDS = ("fs:*:*", "network:*:*", "process:exec:*", "env:read:*", "socket:connect:*")
COMMAND_DOMAINS = tuple(need.partition(":")[0] for need in COMMAND_NEEDS)


def admit_commands(manifest: Manifest, name: str = COMMANDS) -> Manifest:
    """Return the manifest with an admission for commands, which no bundle and no rule about a single tool narrows.

    A deny of all tools, `tool:call:*`, denies commands too.
    """
    admissions = {**manifest.admissions, name: (Admission(manifest.origin),)}
    layers = tuple(
        replace(layer, denies=tuple(rule for rule in layer.denies if not _names_tool(rule.capability, name)))
        for layer in manifest.layers
    )
    return replace(manifest, admissions=admissions, layers=layers, loaded=manifest.loaded or manifest)


def command_needs(manifest: ManifestFields) -> tuple[str, ...]:
    """What any command needs under a manifest: all that a program can use, and the secrets that are placed for it.

    A secret that a ceiling takes away is no need, since a command runs without it.
    """
    ceiling = manifest.ceiling
    placed = (f"secret:read:{one.secret}" for one in STAND_INS.of(manifest) if one.secret)
    return (*COMMAND_NEEDS, *dict.fromkeys(need for need in placed if ceiling.has(Use(need))))


def with_commands(manifest: Manifest) -> Manifest:
    """Return the manifest with one more tool, named `COMMANDS`, that is any command."""
    needs = CapabilitySet(command_needs(manifest))
    spec = ToolSpec(COMMANDS, needs, manifest.max_effect, "isolated", origin=manifest.origin)
    return admit_commands(manifest).declare([spec])


def asked_tool(tool: str, manifest: Manifest) -> tuple[str, Manifest]:
    """The tool that people mean by a name, and the manifest that has it: `run` is any command, unless a tool is."""
    if tool != PROGRAM or tool in manifest.admissions or tool in manifest.tools:
        return tool, manifest
    return COMMANDS, with_commands(manifest)


def check_command_use(*uses: Use) -> None:
    """Raise `InvalidUse` for a use that no command of `licet run` has."""
    for use in uses:
        if use.domain not in COMMAND_DOMAINS:
            domains = ", ".join(COMMAND_DOMAINS)
            raise InvalidUse(str(use), f"what a command of `licet run` uses: {domains}; never `{use.domain}`")


def connection_of_command(request: Use, manifest: ManifestFields) -> Use:
    """What a command needs for a request.

    Over https it is a connection, since the proxy cannot see what a tunnel carries, except in places under `inspect`.
    """
    if request.action != "https" or is_inspected(places_of(INSPECT.of(manifest)), request.target, request.port or 0):
        return request
    return Use(f"network:tcp:{request.target}:{request.port}")


def _names_tool(rule: Capability, tool: str) -> bool:
    return rule.domain == "tool" and rule.key == tool
