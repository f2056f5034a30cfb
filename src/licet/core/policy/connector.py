"""Connectors: which ones a tool may use, in which versions.

Every allowlist must have the connector: that of the workspace (tenant), of the app, and of each manifest, personality
and bundle (profiles). The version that is checked is the one that runs: of a tool, the installed one or, if none is
known, the declared one; of a server, the one that its lock resolved, or else what the server says of itself.

The definition of a connector in a workspace: its hosts and secrets, its effect class and its versions.
"""

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.scope import Malformed, name
from licet.core.limits import LONGEST_RANGE
from licet.core.policy.layer import EffectClass, Layer
from licet.core.values import Origin


class Installed(Struct, frozen=True, order=True):
    """A distribution on this machine and its version. An empty version is unknown and is in no range.

    Of a server it is the package that `licet.lock` resolved, or what the server claimed of itself when it was locked.
    """

    distribution: str
    version: str
    source: Literal["installed", "locked", "claimed"] = "installed"


class ConnectorRef(Struct, frozen=True):
    """The connector that a tool uses, and its version if stated: `github@2.1`.

    If the connector is an installed distribution, the installed version counts, and the stated one must agree with it.
    """

    name: str
    version: str = ""
    running: Installed | None = None

    @property
    def counted(self) -> str:
        """The version that is checked against allowlists: the installed one, or else the declared one."""
        return self.version if self.running is None else self.running.version

    def __str__(self) -> str:
        if self.running is not None and self.counted:
            claim = "the server's own claim"
            why = claim if self.running.source == "claimed" else f"{self.running.distribution} {self.counted}"
            return f"{self.name}@{self.counted} ({why})"
        return f"{self.name}@{self.version}" if self.version else self.name

    def unknown(self, example: str = "2.1") -> tuple[str, str]:
        """What to say if no version is known: the fact, and the fix."""
        if self.running is not None and self.running.source != "installed":
            return "has no version: its server claims none", f"allow `{self.name}` without a version, or not at all"
        return "states no version", f"state its version on the tool, such as `{self.name}@{example}`"

    @classmethod
    def parse(cls, text: str) -> "ConnectorRef":
        """Parse `github` or `github@2.1`."""
        connector, at, version = text.partition("@")
        if at:
            _version(version)
        return cls(name(connector), version)


class ConnectorRule(Struct, frozen=True):
    """One entry of an allowlist: a connector and its allowed versions."""

    name: str
    versions: str  # a specifier such as `>=2.0`; empty is any
    origin: Origin

    @property
    def text(self) -> str:
        """The entry as it means: `github >=2.0`."""
        return f"{self.name} {self.versions}".strip()

    def admits(self, ref: ConnectorRef) -> bool:
        """Whether this entry allows a connector; an unknown version fits only if every version is allowed."""
        if ref.name != self.name:
            return False
        return not self.versions or in_range(ref.counted, self.versions)


class Connectors(Struct, frozen=True):
    """The allowlists that apply to one agent. `app=None` adds no restriction; an empty list allows no connector."""

    tenant: tuple[ConnectorRule, ...] = ()
    app: tuple[ConnectorRule, ...] | None = None
    app_deny: tuple[ConnectorRule, ...] = ()
    profiles: tuple[tuple[ConnectorRule, ...], ...] = ((),)  # one list per ceiling
    profile_places: tuple[tuple[str, Origin], ...] = ()  # the key of each list, and where it is written or should be
    app_name: str = ""
    workspace_file: str = ""
    tenant_place: Origin | None = None
    app_place: Origin | None = None

    def placed(self, start: Origin) -> tuple[tuple[str, Origin], ...]:
        """The place of each profile list: one for each, since the two tuples are read in parallel."""
        missing = len(self.profiles) - len(self.profile_places)
        return (*self.profile_places, *[("capabilities.connectors", start)] * missing)

    def obstacle(self, ref: ConnectorRef) -> tuple[Origin | None, str, str] | None:
        """Why a connector is not allowed: the place, the reason in words, and the fix; None if it is allowed."""
        for rule in self.app_deny:
            if rule.name == ref.name:
                where = _place(f"connectors.app_overrides.{self.app_name}.deny", self.workspace_file)
                return rule.origin, "is denied for this app", f"remove `{ref.name}` from {where}"
        if self.app is not None and not self.app_name:
            fix = "use the personality together with a manifest that names its `app`"
            return None, "depends on the app, and a personality alone has none", fix
        for key, place, rules in self._lists():
            file = place.file if place is not None else self.workspace_file if key.startswith("connectors.") else ""
            if any(rule.admits(ref) for rule in rules):
                continue
            for rule in rules:
                if rule.name == ref.name and ref.counted:
                    return (
                        rule.origin,
                        f"is allowed only in versions {rule.versions}",
                        f"widen its version under {_place(key, file)}",
                    )
                if rule.name == ref.name:
                    text, fix = ref.unknown()
                    return rule.origin, f"{text}, and {rule.versions} is required", fix
            return place, f"is not listed under `{key}`", f"add `{ref.name}` under {_place(key, file)}"
        return None

    def names(self) -> tuple[str, ...]:
        """The connectors that are in every list, whatever the version."""
        named = [{rule.name for rule in rules} for _, _, rules in self._lists()]
        return tuple(sorted(set.intersection(*named) - {rule.name for rule in self.app_deny}))

    def by_name(self) -> "dict[str, Connectors]":
        """For each connector that is in every list, the same lists with only the entries about it."""
        tenant, app = _by_name(self.tenant), None if self.app is None else _by_name(self.app)
        profiles = [_by_name(profile) for profile in self.profiles]
        return {
            name: replace(
                self,
                tenant=tenant[name],
                app=None if app is None else app[name],
                app_deny=(),
                profiles=tuple(profile[name] for profile in profiles),
            )
            for name in self.names()
        }

    def _lists(self) -> Iterator[tuple[str, Origin | None, tuple[ConnectorRule, ...]]]:
        yield "connectors.tenant_allowlist", self.tenant_place, self.tenant
        if self.app is not None:
            yield f"connectors.app_overrides.{self.app_name}.allow", self.app_place, self.app
        for number, profile in enumerate(self.profiles):
            known = number < len(self.profile_places)
            key, place = self.profile_places[number] if known else ("capabilities.connectors", None)
            yield key, place, profile


class Versions(Struct, frozen=True):
    """What the definition of a connector states about its version."""

    name: str
    origin: Origin
    versions: str = ""  # a specifier; empty is any
    version: str = ""  # if the definition states one version and not a range
    distribution: str = ""  # the distribution whose installed version counts, if the definition names one

    def obstacle(self, ref: ConnectorRef) -> tuple[Origin | None, str, str] | None:
        """Why the definition does not allow the version that counts, in the form of `Connectors.obstacle`."""
        if self.versions and not in_range(ref.counted, self.versions):
            key = _place(f"connectors.definitions.{self.name}.version", self.origin.file)
            if not ref.counted:
                text, fix = ref.unknown(self.version or "2.1")
                return self.origin, f"{text}, and is defined as {self.versions}", fix
            return self.origin, f"is defined as {self.versions}", f"use a version in that range, or change {key}"
        return None


def stated_obstacle(ref: ConnectorRef) -> tuple[Origin | None, str, str] | None:
    """Why the version that runs does not agree with the one that is stated, or is not known."""
    if ref.running is None:
        return None
    name, version = ref.running.distribution, ref.running.version
    if ref.running.source != "installed":
        return _server_obstacle(ref, version)
    if not version:
        return (
            None,
            f"needs one installed version of {name}, and there is none, or several",
            f"install one version of `{name}`",
        )
    if ref.version and not in_range(version, declared_range(ref.version)):
        fix = f"install `{name}` {declared_range(ref.version)}, or declare `{ref.name}@{version}` on the tool"
        return None, f"is installed, but the tool declares {ref.version}", fix
    return None


def _server_obstacle(ref: ConnectorRef, version: str) -> tuple[Origin | None, str, str] | None:
    if not ref.version or in_range(version, declared_range(ref.version)):
        return None
    if not version:
        text, fix = ref.unknown()
        return None, f"{text}, but the policy states {ref.version}", fix
    runs = "is what its server claims" if ref.running and ref.running.source == "claimed" else "is what is locked"
    fix = f"state `{ref.name}@{version}` on the server, or start another version of it and run `licet lock --update`"
    return None, f"{runs}, but the policy states {ref.version}", fix


def in_range(version: str, versions: str) -> bool:
    """Whether a version is in a range; an unknown or invalid version is in none."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return bool(version) and SpecifierSet(versions).contains(version, prereleases=True)
    except InvalidVersion:
        return False


def declared_range(version: str) -> str:
    """The range that a declared version means: `2.1` is `==2.1.*`; `2.1rc1` has no such range and is `==2.1rc1`."""
    try:
        return version_range(version)
    except Malformed:
        return f"=={version}"


def _by_name(rules: tuple[ConnectorRule, ...]) -> dict[str, tuple[ConnectorRule, ...]]:
    found: dict[str, list[ConnectorRule]] = {}
    for rule in rules:
        found.setdefault(rule.name, []).append(rule)
    return {name: tuple(entries) for name, entries in found.items()}


def _place(key: str, file: str) -> str:
    return f"`{key}` in {file}" if file else f"`{key}`"


def version_range(text: str) -> str:
    """Parse a range of versions into a normalised specifier; a bare `1.5` means `==1.5.*`."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if len(text) > LONGEST_RANGE:
        raise Malformed(text[:80], f"a version range of at most {LONGEST_RANGE} characters")
    try:
        if text[:1].isdigit():
            _version(text)
            text = f"=={text}.*"
        specifier = str(SpecifierSet(text))
    except InvalidSpecifier:
        specifier = ""
    if not specifier:  # a specifier without a clause would mean any version
        raise Malformed(text, "a version range such as `>=2.0`, or a version such as `1.5`")
    return specifier


def defined_versions(text: str) -> str:
    """Check the version or range of a definition, and return it as it is written."""
    version_range(text)
    return text


def _version(text: str) -> str:
    from packaging.version import InvalidVersion, Version

    try:
        return str(Version(text))
    except InvalidVersion:
        raise Malformed(text, "a version such as `2.1`") from None


class Definition(Struct, frozen=True):
    """The definition of one connector; a tool that uses the connector must fit it."""

    versions: Versions
    layer: Layer | None = None  # its hosts and secrets, if it states any
    effects: tuple[tuple[EffectClass, Origin], ...] = ()

    @property
    def distribution(self) -> str:
        """The distribution whose installed version counts; empty if none is named."""
        return self.versions.distribution
