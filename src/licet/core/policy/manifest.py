"""A manifest as a value: what an agent may touch, rule by rule, each with the place where it is written.

Reading files is not done here, and neither is judging: see `reach` for what one tool holds, `decide` for one call.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol

from msgspec.structs import replace

from licet.core.algebra.domains import PATH_DOMAINS
from licet.core.algebra.scope import directory_key
from licet.core.policy.digest import manifest_digest
from licet.core.policy.manifest_fields import ManifestFields
from licet.core.policy.meet import met_fields
from licet.core.policy.tool import ToolSpec


class PathText(Protocol):
    """A path that is no text, such as a `Path`."""

    def __fspath__(self) -> str: ...


class Manifest(ManifestFields, frozen=True, kw_only=True, dict=True):
    """What one agent may touch. Absent means no: an empty manifest reaches nothing."""

    loaded: "Manifest | None" = None  # before tools and directories were filled in

    @classmethod
    def from_data(
        cls,
        data: Mapping[str, Any],
        workspace: Mapping[str, Any] | None = None,
        personality: Mapping[str, Any] | None = None,
        *,
        root: str | PathText | None = None,
    ) -> "Manifest":
        """A manifest from the keys of a policy file as plain data, or `ManifestError` with every problem.

        Checks and digest are those of a file; places are JSON pointers. `root` is the directory of the code that
        `from:` names; without one, `from:` is refused.
        """
        if data_reader is None:
            raise RuntimeError("the reader of policy data is not loaded: take `Manifest` from `licet`")
        return data_reader(data, workspace, personality, root=root)

    @cached_property
    def digest(self) -> str:
        """The content address of what the files mean, whatever tools and directories were filled in since."""
        return self.loaded.digest if self.loaded is not None else manifest_digest(self)

    def declare(self, specs: Iterable[ToolSpec], *, narrow: bool = False) -> "Manifest":
        """The same manifest, knowing these tools too; `narrow` runs misfits at the tighter class and level."""
        tools = {**self.tools, **{spec.name: spec for spec in specs}}
        return replace(self, tools=tools, narrow=narrow or self.narrow, loaded=self.loaded or self)

    def expand(self, workdir: str, home: str) -> "Manifest":
        """The same manifest with `${workdir}` and `~` replaced by real directories; the digest stays.

        An empty `home` is none: `Malformed` if the manifest speaks of it.
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
        return {rule.key.partition("/")[0] for rule in rules if rule.domain in PATH_DOMAINS}

    def meet(self, other: "Manifest") -> "Manifest":
        """What both allow; the other is a personality, this one gives the agent its name.

        `ValueError` if they have bundles of one name that say different things.
        """
        return replace(self, **met_fields(self, other))


# What `Manifest.from_data` calls. The layer that knows the keys of policy files sets it; core knows what they mean.
data_reader: Callable[..., Manifest] | None = None
