"""A manifest as a value: what one agent may touch, where each rule is written, and the digest of it all.

Files are read in `policy_files`. What one tool holds is computed in `decision/reach.py`, and one call is decided in
`decision/decide.py`.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol

from msgspec.structs import replace

from licet.core.algebra.capability import Capability
from licet.core.algebra.domains import PATH_DOMAINS
from licet.core.algebra.scope import directory_key
from licet.core.policy.digest import manifest_digest
from licet.core.policy.manifest_fields import ManifestFields
from licet.core.policy.meet import met_fields, narrowed_fields
from licet.core.policy.organisation import Organisation
from licet.core.policy.tool import ToolSpec


class PathText(Protocol):
    """A path object, such as `pathlib.Path`."""

    def __fspath__(self) -> str: ...


class Manifest(ManifestFields, frozen=True, kw_only=True, dict=True):
    """What one agent may touch. An empty manifest allows nothing."""

    loaded: "Manifest | None" = None  # the manifest as it was loaded, before tools and directories were filled in
    project: "Manifest | None" = None  # the manifest before an organisation narrowed it

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
        if data_reader is None:
            raise RuntimeError("the reader of policy data is not loaded: take `Manifest` from `licet`")
        return data_reader(data, workspace, personality, root=root)

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
        return replace(self, layers=layers, tools=tools, roots=roots, loaded=self.loaded or self)

    def _roots_used(self) -> set[str]:
        rules = [rule.capability for layer in self.layers for rule in (*layer.allows, *layer.denies)]
        rules += [need for spec in self.tools.values() for need in spec.touches.allow]
        rules += [Capability(rule) for server in self.servers.values() for rule in server.get("grants", ())]
        return {rule.key.partition("/")[0] for rule in rules if rule.domain in PATH_DOMAINS}

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


# Called by `Manifest.from_data`. `policy_files` sets it, because core does not import the reader of policy files.
data_reader: Callable[..., Manifest] | None = None
