"""`ToolCapabilities`: what a tool touches, as a typed value instead of a mapping. Its meaning is in `needs`."""

from collections.abc import Collection, Mapping
from typing import Any, Literal

from licet.core.needs import needs_of, normal_form
from licet.core.set import CapabilitySet
from licet.values import dataclass, fields

Paths = Collection[str] | Literal["from-personality"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCapabilities:
    """What a tool touches; a part is one of the classes below or a mapping with the same keys, and absent is nothing.

    ToolCapabilities(network={"allowed_hosts": ["api.weather.gov"]}, secrets=["WEATHER_API_KEY"])
    """

    @dataclass(frozen=True, slots=True)
    class Network:
        """Hosts the tool may reach: exact, `*.example.com`, with a port, or `*` for whatever the ceiling allows."""

        allowed_hosts: Collection[str]

    @dataclass(frozen=True, slots=True)
    class Storage:
        """A key-value store, and how long its entries live unless the tool says otherwise."""

        scope: Literal["tool-private", "session", "personality"]
        kind: Literal["kv"] = "kv"
        ttl_seconds_default: int | None = None

    @dataclass(frozen=True, slots=True)
    class FsReach:
        """Paths the tool may read, and paths it may write and delete; or what the ceiling allows of either."""

        read: Paths = ()
        write: Paths = ()

    @dataclass(frozen=True, slots=True)
    class Process:
        """Binaries the tool may start: names, absolute paths, or `*` for whatever the ceiling allows."""

        allowed_binaries: Collection[str]

    network: Network | Mapping[str, Any] | None = None
    secrets: Collection[str] = ()
    storage: Storage | Mapping[str, Any] | None = None
    fs_reach: FsReach | Mapping[str, Any] | None = None
    process: Process | Mapping[str, Any] | None = None
    env: Collection[str] = ()

    def __post_init__(self) -> None:
        given = self.as_mapping()
        needs_of(given)
        parts = {"network": self.Network, "storage": self.Storage, "fs_reach": self.FsReach, "process": self.Process}
        for key, value in normal_form(given).items():
            # Lists become tuples here, so that nobody changes a declaration after it was checked.
            object.__setattr__(self, key, parts[key](**value) if key in parts else value)

    @property
    def needs(self) -> CapabilitySet:
        """The same as rules."""
        return needs_of(self.as_mapping())

    def as_mapping(self) -> dict[str, Any]:
        """The same as a mapping, with only what was given."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        parts = (self.Network, self.Storage, self.FsReach, self.Process)
        return {
            key: {f.name: v for f in fields(value) if (v := getattr(value, f.name)) is not None}
            if isinstance(value, parts)
            else value
            for key, value in given.items()
            if value is not None
        }
