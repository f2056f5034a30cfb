"""Which HTTPS connections of programs are looked into, and which keys are placed there: `inspect` and `stand_ins`.

For a place under `inspect`, the proxy ends the TLS of a program, so that rules with a method hold inside. A stand-in is
a value without worth that a program gets in place of a secret; the proxy puts the secret there, towards its hosts.

What two policies state together: the union of `inspect`, and the intersection of the stand-ins. What one call or
server has of it is `inspection_of` in `core/decision/placing.py`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.domains import TCP, place_text
from licet.core.algebra.rules import Capability, Use, capability
from licet.core.algebra.scope import Malformed
from licet.core.algebra.set import CapabilitySet, Piece, expand_rule
from licet.core.late_pattern import late_pattern

HTTPS_PORT = 443
AUTHORIZATION = "authorization"
KEY_ALONE, BASIC_USER, BASIC_PASSWORD = "{key}", "basic {key}:", "basic :{key}"
# What `Authorization` takes wherever a key is placed: `token` is GitHub's, from before it took `Bearer`, and npm sends
# `_auth` after `Basic` as it stands in the file. Servers show user names, so the user of Basic is none of them.
_USUAL = ("bearer {key}", "token {key}", "basic {key}", BASIC_PASSWORD)
_FIELD, _LONE_TILDE = late_pattern(r"[!-~]{1,128}"), late_pattern(r"~(?![01])")
_WORD_AND_KEY = late_pattern(r"[!#$%&'*+.^_`|~0-9a-z-]+ \{key\}")


class StandIn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `stand_ins`: where the secret comes from, and where it is placed."""

    name: str  # of the variable; of an entry with a file, only a name
    secret: str = ""  # a reference, or
    file: str = ""  # a file that a program sees with the stand-in in it, and
    field: str = ""  # where in the file the secret is
    hosts: tuple[str, ...] = ()  # as `inspect` has them
    headers: tuple[str, ...] = ()  # lower-case: `x-key`, or with what is around the key, `authorization: bot {key}`
    body: tuple[str, ...] = ()  # fields of forms and of the object that a JSON text is, or `/a/b` for one deeper in it

    @property
    def places(self) -> CapabilitySet:
        """The connections in which the secret is placed."""
        return places_of(self.hosts)

    def forms(self, header: str) -> tuple[str, ...]:
        """What a header, in lower case, may be as a whole, with `{key}` for the key."""
        stated = tuple(form for name, form in map(header_form, self.headers) if name == header)
        return (*_USUAL, *stated) if header == AUTHORIZATION else stated

    @property
    def source(self) -> str:
        """Where the secret comes from, for people to read."""
        return self.secret or f"{self.field} in {self.file}"


class Inspection(Struct, frozen=True):
    """What the proxy of one program looks into, and what it places there."""

    inspect: tuple[str, ...] = ()
    stand_ins: tuple[StandIn, ...] = ()

    @property
    def places(self) -> CapabilitySet:
        """The connections that are looked into."""
        return places_of(self.inspect)

    @property
    def named(self) -> tuple[Use, ...]:
        """The connections that are looked into and named without a wildcard: by `inspect`, or as those of a key."""
        stated = (*self.inspect, *(host for entry in self.stand_ins for host in entry.hosts))
        rules = (Capability(f"network:tcp:{place_with_port(host)}") for host in dict.fromkeys(stated))
        places = self.places
        return tuple(use for rule in rules if "*" not in rule.scope and places.has(use := Use(str(rule))))

    def __bool__(self) -> bool:
        return bool(self.inspect or self.stand_ins)


NOTHING_INSPECTED = Inspection()


def places_of(hosts: Iterable[str]) -> CapabilitySet:
    """Hosts, each with or without a port, as connections."""
    return CapabilitySet(f"network:tcp:{place_with_port(host)}" for host in hosts)


def hosts_of(places: CapabilitySet) -> tuple[str, ...]:
    """Connections as `inspect` has them, in normal form: the port 443 is left out.

    >>> hosts_of(places_of(["api.example.com", "*.example.com", "a.test:8443"]))
    ('*.example.com', 'a.test:8443')
    """
    return tuple(sorted(place_text(one.key, None if one.port == HTTPS_PORT else one.port) for one in places.allow))


def place_with_port(host: str) -> str:
    """A host with its port: 443 if it names none.

    >>> place_with_port("*.example.com"), place_with_port("[::1]:8443")
    ('*.example.com:443', '[::1]:8443')
    """
    name, _, port = host.rpartition(":")
    return (
        host
        if name and port.isdecimal() and (not name.startswith("[") or name.endswith("]"))
        else f"{host}:{HTTPS_PORT}"
    )


def inspected_place(text: str) -> str:
    """Parse an entry of `inspect` to its normal form. Raises `Malformed`.

    >>> inspected_place("API.example.com:443")
    'api.example.com'
    """
    if "/" in text or "@" in text:
        raise Malformed(text, "a host such as `api.example.com` or `api.example.com:8443`, without scheme and path")
    rule = Capability(f"network:tcp:{place_with_port(text)}")
    return place_text(rule.key, None if rule.port == HTTPS_PORT else rule.port)


def placed_at(text: str) -> str:
    """Parse a host of a stand-in: as in `inspect`, but never every host. Raises `Malformed`."""
    place = inspected_place(text)
    if place.partition(":")[0] == "*":
        raise Malformed(text, "the hosts that the key is for, such as `api.example.com`; never every host")
    return place


def header_form(text: str) -> tuple[str, str]:
    """The name of a header, and what it is as a whole, with `{key}` for the key.

    >>> header_form("x-api-key"), header_form("authorization: bot {key}")
    (('x-api-key', '{key}'), ('authorization', 'bot {key}'))
    """
    name, colon, form = text.partition(":")
    return name, form.strip() if colon else KEY_ALONE


def placed_form(name: str, form: str) -> str:
    """Parse what a header is as a whole, after a checked name in lower case. Raises `Malformed`.

    >>> placed_form("x-api-key", "{key}"), placed_form("authorization", "Basic {key}:")
    ('x-api-key', 'authorization: basic {key}:')
    """
    whole = form.strip().lower()
    if whole == KEY_ALONE:
        return name
    in_basic = name == AUTHORIZATION and whole in (BASIC_USER, BASIC_PASSWORD)
    if not in_basic and not _WORD_AND_KEY.fullmatch(whole):
        raise Malformed(f"{name}: {form.strip()}", _FORMS)
    return f"{name}: {whole}"


_FORMS = "`NAME: {key}`, `NAME: WORD {key}`, or `authorization: Basic {key}:` for its user"


def body_field(text: str) -> str:
    """Parse a field of a body, in which a key may be placed. Raises `Malformed`."""
    if not _FIELD.fullmatch(text) or (text.startswith("/") and _LONE_TILDE.search(text)):
        raise Malformed(text, "the name of a field, or a JSON pointer such as `/auth/client_secret`")
    return text


def path_of_field(field: str) -> tuple[str, ...]:
    """The names that lead to a field in JSON.

    >>> path_of_field("client_secret"), path_of_field("/a~1b/0")
    (('client_secret',), ('a/b', '0'))
    """  # JSON pointers: RFC 6901
    if not field.startswith("/"):
        return (field,)
    return tuple(name.replace("~1", "/").replace("~0", "~") for name in field[1:].split("/"))


def is_inspected(places: CapabilitySet, host: str, port: int) -> bool:
    """Whether a connection is looked into. Raises `InvalidUse` for what is no host."""
    return places.has(Use(f"network:tcp:{host}:{port}"))


def looked_into(rule: Capability, places: CapabilitySet) -> bool:
    """Whether all or a part of what a rule about the network allows lies in places that are looked into."""
    if rule.domain != "network":
        return False
    return bool(CapabilitySet((capability("network", TCP, rule.key, rule.port),)) & places)


def stand_in(name: str, stated: Mapping[str, Any]) -> StandIn:
    """An entry of `stand_ins` in normal form, from checked plain data."""
    headers = {placed_form(*header_form(header.lower())) for header in stated.get("headers", ())}
    texts = {key: str(stated.get(key, "")) for key in ("secret", "file", "field")}
    hosts, body = hosts_of(places_of(stated.get("hosts", ()))), tuple(sorted({*stated.get("body", ())}))
    return StandIn(name=name, hosts=hosts, headers=tuple(sorted(headers)), body=body, **texts)


def stand_ins(stated: Mapping[str, Mapping[str, Any]]) -> tuple[StandIn, ...]:
    """The entries of `stand_ins` in the order of their names, from checked plain data."""
    return tuple(stand_in(name, stated[name]) for name in sorted(stated))


def stand_ins_document(entries: Iterable[StandIn]) -> dict[str, Any]:
    """Entries of `stand_ins` as plain data: what is left out is not there."""
    keys = ("secret", "file", "field", "hosts", "headers", "body")
    stated = {one.name: {key: getattr(one, key) for key in keys} for one in entries}
    return {
        name: {key: list(value) if isinstance(value, tuple) else value for key, value in entry.items() if value}
        for name, entry in stated.items()
    }


def met_inspect(one: Iterable[str], two: Iterable[str]) -> tuple[str, ...]:
    """What is looked into under two policies: all that one of them names, since looking into a place narrows it."""
    return hosts_of(places_of((*one, *two)))


def met_stand_ins(one: Iterable[StandIn], two: Iterable[StandIn]) -> tuple[StandIn, ...]:
    """The keys that two policies place: of the same name and source, where both of them place it."""
    theirs = {_identity(entry): entry for entry in two}
    pairs = ((entry, theirs.get(_identity(entry))) for entry in one)
    met = (_met(mine, other) for mine, other in pairs if other is not None)
    return tuple(sorted((entry for entry in met if entry.hosts), key=_identity))


def _identity(entry: StandIn) -> tuple[str, str, str, str]:
    return entry.name, entry.secret, entry.file, entry.field


def _met(one: StandIn, two: StandIn) -> StandIn:
    return replace(
        one,
        hosts=hosts_of(one.places & two.places),
        headers=tuple(sorted({*one.headers} & {*two.headers})),
        body=tuple(sorted({*one.body} & {*two.body})),
    )


def expanded(entries: Iterable[StandIn], workdir: str, home: str) -> tuple[StandIn, ...]:
    """Entries whose files begin with a real directory in place of `${workdir}` or `~`. `Malformed` without a home."""
    return tuple(replace(one, file=expanded_file(one.file, workdir, home)) if one.file else one for one in entries)


def expanded_file(path: str, workdir: str, home: str) -> str:
    """A file with a key, with a real directory in place of `${workdir}` or `~`. Raises `Malformed` without a home."""
    return expand_rule(Capability(f"fs:read:{path}"), workdir, home).key


def uninspected(hosts: Iterable[str], inspect: Iterable[str]) -> tuple[str, ...]:
    """The hosts that `inspect` does not cover: their connections stay tunnels, in which no key can be placed."""
    places = places_of(inspect)
    return tuple(host for host in hosts if not places_of((host,)) <= places)


def inspect_only(here: Iterable[str], there: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What the first policy looks into less than the second: connections whose content nobody sees."""
    for piece in places_of(there) - places_of(here):
        yield f"connections to {_place_text(piece)} are not looked into", _place_text(piece)


def connections(places: CapabilitySet, action: str) -> CapabilitySet:
    """The rules for all that an action, such as `https`, does in some places."""
    return CapabilitySet(f"network:{action}:*@{place_text(rule.key, rule.port)}" for rule in places.allow)


def stand_ins_only(here: Iterable[StandIn], there: Iterable[StandIn]) -> Iterator[tuple[str, str]]:
    """The places in which only the first policy places a key: a host, a header and a field of the body are one each."""
    theirs = {_identity(entry): entry for entry in there}
    for entry in here:
        other = theirs.get(_identity(entry), StandIn(name=entry.name))
        said = f"`{entry.name}` ({entry.source}) is placed"
        for piece in entry.places - other.places:
            yield f"{said} at {_place_text(piece)}", f"{entry.name} at {_place_text(piece)}"
        for header in sorted({*entry.headers} - {*other.headers}):
            yield f"{said} in the header {header}", f"{entry.name} in {header}"
        for field in sorted({*entry.body} - {*other.body}):
            yield f"{said} in the field `{field}` of a body", f"{entry.name} in body {field}"


def _place_text(piece: Piece) -> str:
    texts = [hosts_of(CapabilitySet((rule,)))[0] for rule in (piece.rule, *piece.excepts)]
    return texts[0] + (f" except {', '.join(texts[1:])}" if texts[1:] else "")


def stand_in_text(entry: StandIn) -> str:
    """An entry for people to read.

    >>> stand_in_text(StandIn(name="TOKEN", secret="github/token", hosts=("api.github.com",), headers=("x-key",)))
    '`TOKEN` (github/token) at api.github.com in x-key'
    """
    also = [*entry.headers, *(f"body {field}" for field in entry.body)]
    return f"`{entry.name}` ({entry.source}) at {', '.join(entry.hosts)}" + (f" in {', '.join(also)}" if also else "")
