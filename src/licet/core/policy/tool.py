"""What a tool declares: needs, effect class, level, connector and cost, checked and converted to a `ToolSpec`.

The author of a tool writes `needs=` (rules) or `capabilities=` (a mapping, or a typed `ToolCapabilities`). Both become
the same rules here, for decorators as well as for source that is only read. Functions and files are not known here.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from decimal import Context, Decimal
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from licet.core.algebra.domains import STORAGE_KINDS
from licet.core.algebra.rules import Capability, destination_rule
from licet.core.algebra.scope import Malformed
from licet.core.algebra.scope import name as checked_name
from licet.core.algebra.set import CapabilitySet, Rules
from licet.core.late_pattern import late_pattern
from licet.core.policy.connector import ConnectorRef, Installed
from licet.core.policy.layer import CLASSES, LEVELS, EffectClass, Level
from licet.core.values import Compared, Origin, data_json, digest, money_text, near_hint, plain


class ToolSpec(Compared, frozen=True, dict=True):
    """A tool as policy sees it: everything that decides what a call of it may touch."""

    _not_compared: ClassVar[frozenset[str]] = frozenset(
        {"parameters", "by_keys", "package", "signature", "sketch", "conditional"}
    )

    name: str
    needs: CapabilitySet
    effect: EffectClass | None = None
    sandbox: Level | None = None
    connector: ConnectorRef | None = None
    cost_usd: Decimal | None = None
    description: str = ""
    schema: Mapping[str, Any] | None = None  # None if not known, because only source was read
    origin: Origin | None = None
    storage_ttl_seconds: int | None = None
    optional: CapabilitySet = CapabilitySet()  # held if the ceiling allows it, never a misfit
    parameters: tuple[str, ...] | None = None  # None if the source does not show them with certainty
    by_keys: bool = False  # written with `capabilities=`, not as rules with `needs=`
    package: Installed | None = None  # the distribution that its module belongs to; of a server's tool, what is locked
    signature: str = ""  # its arguments with their types, as written in the source
    reuse: bool = False  # one worker may serve many calls, which can see what earlier ones left in memory
    source: str = ""  # the hash of its text, if it was defined in a notebook cell
    args: Mapping[str, Any] = {}  # rules that its declaration has on its arguments: `free`, or a `scope`
    conditional: bool = False  # it has a check of its own whether it can run here
    governed: bool = False  # its code has no handles: its arguments are tied to what it declares
    sketch: Mapping[str, Any] | None = None  # the schema of its arguments as far as its source shows it

    def __hash__(self) -> int:
        return hash((self.name, self.needs, self.optional, self.origin))  # a schema is a dict, which has no hash

    @cached_property
    def touches(self) -> CapabilitySet:
        """The needs and the optional needs: the most that a call can hold."""
        return self.needs | self.optional if self.optional else self.needs

    @cached_property
    def needed_connectors(self) -> frozenset[str]:
        """The connectors without which the tool is refused."""
        own = {self.connector.name} if isinstance(self.connector, ConnectorRef) else set()
        return frozenset(_connectors_in(self.needs) | own)

    @cached_property
    def named_connectors(self) -> frozenset[str]:
        """The needed connectors and the optional ones."""
        return self.needed_connectors | _connectors_in(self.optional)

    @property
    def digest(self) -> str:
        """The digest of the definition: it changes whenever something changes that a caller or reviewer relies on."""
        try:
            return digest(self._definition({"schema": self.schema}))
        except ValueError:
            # A schema with an integer from 2**53 on has no canonical JSON, and no older version has digested one. It is
            # a text under a key of its own, so that its digest is never that of another schema.
            return digest(self._definition({"schema": None, "schema_json": data_json(plain(self.schema)).decode()}))

    def _definition(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "name": self.name,
            "description": self.description,
            "needs": [str(rule) for rule in self.needs.allow],
            # Left out if empty, so that the digests from before this key existed stay valid.
            **({"optional": [str(rule) for rule in self.optional.allow]} if self.optional else {}),
            "effect": self.effect,
            "sandbox": self.sandbox,
            "connector": str(self.connector) if self.connector else None,
            "cost_usd": self.cost_usd,
            **schema,
            "storage_ttl_seconds": self.storage_ttl_seconds,
            **{key: value for key, value in self._added() if value},
        }

    def _added(self) -> Iterable[tuple[str, Any]]:
        """The parts that are left out of the digest if empty, so that digests from before they existed stay valid."""
        return ("source", self.source), ("reuse", self.reuse), ("args", dict(self.args))


def _connectors_in(needs: CapabilitySet) -> set[str]:
    return {need.key for need in needs.allow if need.domain == "connector" and not need.defers}


# The plain lists of a manifest, a personality and `ToolCapabilities`, and the rules that an entry means. Hosts are not
# here because their entries have more forms: see `destination_rule` in `core/algebra/rules.py`.
LISTS = {
    "fs_reach.read": ("fs:read",),
    "fs_reach.write": ("fs:write", "fs:delete"),  # the class of a tool decides whether it may delete
    "env": ("env:read",),
    "secrets": ("secret:read",),
    "process.allowed_binaries": ("process:exec",),
}
KEY_OF = {kind: key for key, kinds in LISTS.items() for kind in kinds}
EXACT_KEY_OF = {kinds[0]: key for key, kinds in LISTS.items() if len(kinds) == 1}  # the keys that mean only one rule

FROM_PERSONALITY = "from-personality"
TOUCHES_NOTHING = "`capabilities={}` is a tool that touches nothing"
NEITHER = f"give `capabilities=` or `needs=`; {TOUCHES_NOTHING}"

_KEYS = {  # the keys below each key; an empty tuple means that its value is a list
    "network": ("allowed_hosts",),
    "secrets": (),
    "storage": ("scope", "kind", "ttl_seconds_default"),
    "fs_reach": ("read", "write"),
    "process": ("allowed_binaries",),
    "env": (),
}
_REQUIRED = {"network": "allowed_hosts", "storage": "scope", "process": "allowed_binaries"}
_CAMEL_CASE = {
    "allowedHosts": "allowed_hosts",
    "allowedBinaries": "allowed_binaries",
    "ttlSecondsDefault": "ttl_seconds_default",
}
_HOSTS = "network.allowed_hosts"

# 10 digits before the point and 15 after it: a sum of a thousand such amounts still fits the 28 digits of `decimal`.
_AMOUNT = late_pattern(r"[0-9]{1,10}(\.[0-9]{1,15})?")
LARGEST_AMOUNT = 10**9
_FINEST = Decimal("1e-15")
_LARGEST_TTL = 2**53 - 1  # the largest integer that is exact in every JSON parser

_Word = TypeVar("_Word", bound=str)


def needs_of(capabilities: Mapping[str, Any]) -> CapabilitySet:
    """The rules that a `ToolCapabilities` mapping means; `Malformed` if it has a wrong key or value."""
    return _needs(normal_form(capabilities))


def normal_form(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Check a `ToolCapabilities` mapping and return it with snake_case keys and tuples instead of lists."""
    declared = _snake_case(capabilities, tuple(_KEYS), "`capabilities`")
    for key, value in declared.items():
        if not _KEYS[key]:
            declared[key] = _texts(value, key)
            continue
        part = declared[key] = _snake_case(value, _KEYS[key], f"`{key}`")
        required = _REQUIRED.get(key)
        if required and required not in part:
            raise Malformed(_shown(value), f"`{required}` in `{key}`")
        if key == "storage":
            _check_storage(part)
            continue
        for inner in part:
            where = f"{key}.{inner}"
            if key == "fs_reach" and isinstance(part[inner], str):
                _word(part[inner], (FROM_PERSONALITY,), where, f"a list of paths or `{FROM_PERSONALITY}`")
            else:
                part[inner] = _texts(part[inner], where)
    return declared


def spec_of(
    *,
    name: str,
    capabilities: Mapping[str, Any] | None = None,
    needs: Rules | None = None,
    optional: Rules | None = None,
    effect: str | None = None,
    sandbox: str | None = None,
    connector: str | ConnectorRef | None = None,
    cost_usd: Decimal | str | float | None = None,
    description: str = "",
    schema: Mapping[str, Any] | None = None,
    origin: Origin | None = None,
    reuse: bool = False,
) -> ToolSpec:
    """Check a declaration: `Malformed` for a wrong value, `TypeError` unless exactly one of the two forms is given."""
    if not isinstance(name, str):
        raise Malformed(_shown(name), "text as `name`")
    checked_name(name)
    if capabilities is None and needs is None:
        raise TypeError(f"`{name}` does not say what it touches: {NEITHER}")
    if capabilities is not None and needs is not None:
        raise TypeError(f"`{name}` says twice what it touches: keep one of `capabilities=` and `needs=`")
    declared = {} if capabilities is None else normal_form(capabilities)
    touched = _needs(declared) if needs is None else _rules_as_given(needs, "needs")
    through = None if connector is None else _connector(connector)
    if through is not None:
        touched = touched | CapabilitySet((f"connector:use:{through.name}",))
    if not isinstance(description, str):
        raise Malformed(_shown(description), "text as `description`")
    return ToolSpec(
        name,
        touched,
        effect=None if effect is None else _word(effect, CLASSES, "effect"),
        sandbox=None if sandbox is None else _word(sandbox, LEVELS, "sandbox"),
        connector=through,
        cost_usd=None if cost_usd is None else amount(cost_usd),
        description=description,
        schema=schema,
        origin=origin,
        storage_ttl_seconds=declared.get("storage", {}).get("ttl_seconds_default"),
        optional=CapabilitySet() if optional is None else _rules_as_given(optional, "optional"),
        by_keys=capabilities is not None,
        reuse=reuse,
    )


def summary(docstring: str) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join(re.split(r"\n\s*\n", docstring.strip(), maxsplit=1)[0].split())


def amount(value: Decimal | str | float) -> Decimal:
    """Parse an exact amount of money. A float means the decimal number that Python prints for it."""
    number = Decimal("NaN")
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        number = Decimal(value)
    elif isinstance(value, float) or (isinstance(value, str) and _AMOUNT.fullmatch(value)):
        number = Decimal(value if isinstance(value, str) else repr(value))
    if number.is_finite() and 0 <= number <= LARGEST_AMOUNT:
        exact = number.quantize(_FINEST, context=Context(prec=28))
        if exact == number:
            return Decimal(money_text(exact.copy_abs()))
    hint = 'write it as text, such as `"0.25"`' if isinstance(value, float) else ""
    raise Malformed(_shown(value), f"an amount from 0 to {LARGEST_AMOUNT}, to 15 decimals, as `cost_usd`", hint)


def _needs(declared: dict[str, Any]) -> CapabilitySet:
    hosts = declared.get("network", {}).get("allowed_hosts", ())
    rules = [_rule("network:*", host, _HOSTS) for host in hosts]
    for where, kinds in LISTS.items():
        outer, _, inner = where.partition(".")
        entries = declared.get(outer, ())
        if inner and entries:
            entries = entries.get(inner, ())
        for entry in ("*",) if entries == FROM_PERSONALITY else entries:
            rules += [_rule(kind, entry, where) for kind in kinds]
    if "storage" in declared:
        rules.append(Capability(f"storage:*:{declared['storage']['scope']}"))
    return CapabilitySet(rules)


def _rule(kind: str, entry: str, where: str) -> Capability:
    try:
        if where != _HOSTS:
            return Capability(f"{kind}:{entry}")
        return destination_rule(entry)
    except Malformed as error:
        hint = error.hint
        if entry == FROM_PERSONALITY and where.startswith("fs_reach"):
            hint = f"write `{FROM_PERSONALITY}` alone, not in a list"
        raise Malformed(error.found, f"{error.expected}, in `{where}`", hint) from None


def _rules_as_given(given: Rules, key: str) -> CapabilitySet:
    if isinstance(given, CapabilitySet):
        if given.deny:
            raise Malformed(str(given.deny[0]), f"{key} without denies", "a tool says what it touches; manifests deny")
        return given
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        hint = f"write `[{given!r}]`" if isinstance(given, str) else ""
        raise Malformed(_shown(given), f"a list of rules such as `fs:read:/srv/data` as `{key}`", hint)
    rules = []
    for rule in given:
        if not isinstance(rule, str | Capability):
            raise Malformed(_shown(rule), f"a rule such as `fs:read:/srv/data` in `{key}`")
        rules.append(rule)
    return CapabilitySet(rules)


def _connector(connector: str | ConnectorRef) -> ConnectorRef:
    if isinstance(connector, ConnectorRef):
        return connector
    if not isinstance(connector, str):
        raise Malformed(_shown(connector), "a connector such as `github` or `github@2.1`")
    return ConnectorRef.parse(connector)


def _check_storage(storage: dict[str, Any]) -> None:
    _word(storage["scope"], STORAGE_KINDS, "storage.scope")
    _word(storage.get("kind", "kv"), ("kv",), "storage.kind")
    ttl = storage.get("ttl_seconds_default", 1)
    if isinstance(ttl, bool) or not isinstance(ttl, int) or not 1 <= ttl <= _LARGEST_TTL:
        raise Malformed(_shown(ttl), "a whole number of seconds, at least 1, as `storage.ttl_seconds_default`")


def _snake_case(value: Mapping[str, Any], keys: tuple[str, ...], where: str) -> dict[str, Any]:
    """Convert the camelCase keys of a mapping; `Malformed` for a key that is unknown or there twice."""
    listed = ", ".join(f"`{key}`" for key in keys)
    if not isinstance(value, Mapping):
        raise Malformed(_shown(value), f"a mapping with {listed} as {where}")
    converted: dict[str, Any] = {}
    for key, item in value.items():
        snake = _CAMEL_CASE.get(key, key)
        if snake not in keys:
            raise Malformed(_shown(key), f"one of {listed} in {where}", _near(key, keys))
        if snake in converted:
            raise Malformed(_shown(key), f"one spelling of `{snake}` in {where}", f"keep `{snake}`")
        converted[snake] = item
    return converted


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple | set | frozenset):
        hint = f"write `[{value!r}]`" if isinstance(value, str) else ""
        raise Malformed(_shown(value), f"a list as `{where}`", hint)
    for entry in value:
        if not isinstance(entry, str):
            raise Malformed(_shown(entry), f"text in `{where}`")
    return tuple(sorted(value) if isinstance(value, set | frozenset) else value)


def _word(value: Any, words: tuple[_Word, ...], where: str, expected: str = "") -> _Word:
    for word in words:
        if value == word:
            return word
    listed = expected or ("one of " if words[1:] else "") + ", ".join(f"`{word}`" for word in words)
    raise Malformed(_shown(value), f"{listed} as `{where}`", _near(value, words))


def _near(word: Any, words: tuple[str, ...]) -> str:
    return near_hint(word[:64].lower(), words) if isinstance(word, str) else ""


def _shown(value: Any) -> str:
    try:
        text = value if isinstance(value, str) else repr(value)
    except ValueError:  # a number with too many digits to print
        text = type(value).__name__
    return text if len(text) <= 80 else f"{text[:79]}…"


Paths = Collection[str] | Literal["from-personality"]


class ToolCapabilities(Struct, frozen=True, kw_only=True):
    """What a tool touches. Each part is one of the classes below or a mapping with the same keys.

    ToolCapabilities(network={"allowed_hosts": ["api.weather.gov"]}, secrets=["WEATHER_API_KEY"])
    """

    class Network(Struct, frozen=True):
        """Hosts that the tool reaches: `api.example.com`, `*.example.com`, with a port, or `*` for all allowed ones."""

        allowed_hosts: Collection[str]

    class Storage(Struct, frozen=True):
        """A key-value store; `ttl_seconds_default` is the lifetime of entries for which the tool sets none."""

        scope: Literal["tool-private", "session", "personality"]
        kind: Literal["kv"] = "kv"
        ttl_seconds_default: int | None = None

    class FsReach(Struct, frozen=True):
        """Paths that the tool reads, and paths that it writes and deletes; `from-personality` is all allowed ones."""

        read: Paths = ()
        write: Paths = ()

    class Process(Struct, frozen=True):
        """Binaries that the tool starts: names, absolute paths, or `*` for all that the ceiling allows."""

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
            # Lists become tuples here, so that a declaration cannot change after it was checked.
            force_setattr(self, key, parts[key](**value) if key in parts else value)

    @property
    def needs(self) -> CapabilitySet:
        """The rules that these capabilities mean."""
        return needs_of(self.as_mapping())

    def as_mapping(self) -> dict[str, Any]:
        """The same capabilities as a mapping, without the parts that were not given."""
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        parts = (self.Network, self.Storage, self.FsReach, self.Process)
        return {
            key: {name: part for name in value.__struct_fields__ if (part := getattr(value, name)) is not None}
            if isinstance(value, parts)
            else value
            for key, value in given.items()
            if value is not None
        }
