"""Connectors: tenant ∩ app ∩ profile allowlists with version ranges; what nobody lists is denied."""

from dataclasses import dataclass

from licet.core.origin import Origin
from licet.core.scope import Malformed, name


@dataclass(frozen=True, slots=True)
class ConnectorRef:
    """The connector a tool speaks through, and its version if stated: `github@2.1`."""

    name: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name}@{self.version}" if self.version else self.name

    @classmethod
    def parse(cls, text: str) -> "ConnectorRef":
        """Read `github` or `github@2.1`."""
        connector, at, version = text.partition("@")
        if at:
            _version(version)
        return cls(name(connector), version)


@dataclass(frozen=True, slots=True)
class ConnectorRule:
    """One line of an allowlist: a connector, and the versions meant."""

    name: str
    versions: str  # a specifier such as `>=2.0`; empty is any
    origin: Origin

    def admits(self, ref: ConnectorRef) -> bool:
        """Whether a connector is on this line; an unstated version fits only where any does."""
        if ref.name != self.name:
            return False
        if not self.versions:
            return True
        from packaging.specifiers import SpecifierSet

        return bool(ref.version) and SpecifierSet(self.versions).contains(ref.version, prereleases=True)


@dataclass(frozen=True, slots=True)
class Connectors:
    """The allowlists that apply to one agent; None does not narrow, an empty list leaves nothing."""

    tenant: tuple[ConnectorRule, ...] = ()
    app: tuple[ConnectorRule, ...] | None = None
    app_deny: tuple[ConnectorRule, ...] = ()
    profile: tuple[ConnectorRule, ...] = ()

    def admits(self, ref: ConnectorRef) -> bool:
        """Whether every list admits a connector and no deny names it."""
        return self.obstacle(ref) is None

    def obstacle(self, ref: ConnectorRef) -> str | None:
        """The first list that does not admit a connector, in words, or None."""
        for rule in self.app_deny:
            if rule.name == ref.name:
                return f"denied for this app ({rule.origin})"
        for title, rules in (
            ("tenant_allowlist", self.tenant),
            ("the app's list", self.app),
            ("connectors", self.profile),
        ):
            if rules is not None and not any(rule.admits(ref) for rule in rules):
                listed = [rule for rule in rules if rule.name == ref.name]
                if listed:
                    return f"{title} has version {listed[0].versions} ({listed[0].origin})"
                return f"not in {title}"
        return None

    def names(self) -> tuple[str, ...]:
        """The connectors that every list names, at some version."""
        lists = [self.tenant, self.profile, *([self.app] if self.app is not None else [])]
        denied = {rule.name for rule in self.app_deny}
        return tuple(sorted(set.intersection(*({rule.name for rule in rules} for rules in lists)) - denied))


def version_range(text: str) -> str:
    """A specifier in its normal spelling; a bare `1.5` means `==1.5.*`."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        if text[:1].isdigit():
            _version(text)
            text = f"=={text}.*"
        return str(SpecifierSet(text))
    except InvalidSpecifier:
        raise Malformed(text, "a version range such as `>=2.0`, or a version such as `1.5`") from None


def _version(text: str) -> str:
    from packaging.version import InvalidVersion, Version

    try:
        return str(Version(text))
    except InvalidVersion:
        raise Malformed(text, "a version such as `2.1`") from None
