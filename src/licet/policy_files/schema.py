"""The schema of policy files: the keys of a workspace, a manifest and a personality, with the shape of each value.

Both the checks and the output of `licet schema` come from it.

Recognizes files that are not policy at all, such as a file with secrets that was named by mistake.

The message about such a file quotes nothing from it. A file counts as policy if one of its first top-level keys is a
known key, or is similar to one.
"""

import ipaddress
import re
from collections.abc import Callable, Collection, Iterable
from itertools import islice

from licet.core.algebra.domains import STORAGE_KINDS
from licet.core.algebra.rules import Capability, InvalidUse, destination_rule, use_of_url
from licet.core.algebra.scope import (
    NAME_PATTERN,
    Malformed,
    binary,
    name,
    path_key,
    secret_key,
    secret_reference,
    variable,
)
from licet.core.late_pattern import late_pattern
from licet.core.limits import MOST_ASKS
from licet.core.policy.connector import ConnectorRef, defined_versions, version_range
from licet.core.policy.flow import LABELS, PRESETS
from licet.core.policy.inspection import body_field, inspected_place, placed_at
from licet.core.policy.layer import CLASSES, LEVELS
from licet.core.policy.servers import CLIENT_ASKS, EVERY, SERVER_NAME, placeable_header
from licet.core.policy.terms import WRITE_APPROVALS
from licet.core.review.examples import asked_use
from licet.core.values import Problem, checked_key
from licet.policy_files.limits import MOST_KEYS_LOOKED_AT
from licet.policy_files.nodes import Mapping, Node, Scalar, Sequence
from licet.policy_files.shapes import (
    AnyJson,
    Either,
    Field,
    Flag,
    Integer,
    ListOf,
    MappingOf,
    Money,
    OneOf,
    Record,
    Shape,
    TextShape,
    did_you_mean,
)


def cidr(text: str) -> str:
    """Parse an address range to its normal form."""
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        raise Malformed(text, "an address range such as `10.0.0.0/8`, without host bits") from None


def server_url(text: str) -> str:
    """Check the address of a server: one that `ctx.fetch` could use, without query and fragment."""
    expected = "an `https` or `http` address such as `https://mcp.example.com/mcp`, without query and fragment"
    try:
        use_of_url("POST", text)
    except InvalidUse:
        raise Malformed(text, expected) from None
    if "?" in text or "#" in text:
        raise Malformed(text, expected)
    return text


def own_domain(text: str) -> str:
    """Parse a domain to its normal form."""
    rule = Capability(f"network:*:{text}") if "@" not in text else None
    last = "" if rule is None or rule.port is not None or rule.key[:1] == "." else rule.key.rpartition(".")[2]
    if rule is None or not last or last == rule.key or last.isdecimal() or ":" in last:
        raise Malformed(text, "a domain such as `example.com`, which counts with all below it")
    return rule.key


def result_field(text: str) -> str:
    """Parse a field of a result: a JSON pointer without its first slash. Raises `Malformed`."""
    if text[0] == "/":
        raise Malformed(text, "a field such as `sender/email`", "leave out the first `/`")
    if "" in text.split("/"):
        raise Malformed(text, "a field such as `sender/email`, without empty parts")
    return text


def _or_star(parse: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "*" if text == "*" else parse(text)


def _use(text: str) -> str:
    """Check a use as people write it. Where `~` and `${workdir}` are is known only when it is asked."""
    asked_use(text, "/workdir", "/home")
    return text


def _several(shape: Shape, description: str = "") -> Field:
    return Field(ListOf(shape), description=description)


NAME = TextShape(expected="a name of 1 to 128 letters, digits, `_`, `.`, `/` or `-`", pattern=NAME_PATTERN)
HOST = TextShape(
    expected="a host: `api.example.com`, `*.example.com` (every name below it), an IP address, or `*`",
    parse=destination_rule,
    examples=("api.example.com", "*.example.com"),
)
PATH = TextShape(
    expected="an absolute path, or one that starts with `~` or `${workdir}`; it covers everything below it",
    parse=path_key,
    examples=("/srv/data", "${workdir}", "~/.config/app"),
)
RULE = TextShape(
    expected="a rule `domain:action:scope`",
    parse=Capability,
    examples=("fs:read:/srv/data", "network:https:get@*.github.com", "network:tcp:db.internal:5432"),
)
USE = TextShape(
    expected="a concrete use, as `licet explain` takes it",
    parse=_use,
    examples=("network:https:get@api.example.com", "POST https://api.example.com/v1", "write ${workdir}/out.txt"),
)
VARIABLE = TextShape(expected="the name of an environment variable", parse=_or_star(variable), examples=("PATH",))
SECRET = TextShape(
    expected="a secret reference, or `prefix/*`", parse=secret_key, examples=("WEATHER_API_KEY", "github/*")
)
BINARY = TextShape(
    expected="a binary name or an absolute path", parse=_or_star(binary), examples=("git", "/usr/bin/grep")
)
CIDR = TextShape(expected="an address range such as `10.0.0.0/8`", parse=cidr, examples=("10.0.0.0/8",))
VERSIONS = TextShape(expected="a version range such as `>=2.0`", parse=version_range, examples=(">=2.0", "1.5"))
INSPECTED = TextShape(
    expected="a host, or `HOST:PORT`",
    parse=inspected_place,
    examples=("api.example.com", "*.example.com", "api.example.com:8443"),
)
INSPECT = Field(ListOf(INSPECTED), description="HTTPS of programs that is looked into")
_PLACED = {
    "hosts": Field(
        ListOf(
            TextShape(
                expected="a host, or `HOST:PORT`",
                parse=placed_at,
                examples=("api.example.com",),
            ),
            least=1,
        ),
        required=True,
        description="where the key is placed, all under `inspect`",
    ),
    "headers": _several(
        TextShape(
            expected="the name of a header",
            parse=placeable_header,
            examples=("x-api-key", "authorization: Bot {key}", "authorization: Basic {key}:"),
        ),
        "where it is placed besides `Authorization` with `Bearer`, `token` and the password of `Basic`",
    ),
    "body": _several(
        TextShape(
            expected="the name of a field, or `/a/b` for the field `b` of `a` in JSON",
            parse=body_field,
            examples=("client_secret", "/auth/client_secret"),
        ),
        "fields where it is placed, of a form and of the object that a JSON text is",
    ),
}
_REFERENCE = Field(
    TextShape(expected="a secret reference", parse=secret_reference, examples=("github/token",)),
    description="the secret, which programs never see",
)
STAND_IN = Record(
    {
        "secret": _REFERENCE,
        "file": Field(PATH, description="a file with the key, of which programs see a copy"),
        "field": Field(
            TextShape(expected="the name of a field of the file", pattern=r"[!-~]([ -~]{0,254}[!-~])?"),
            description="where in the file the key is",
        ),
        **_PLACED,
    },
    description="a key that programs use and never see",
)
STAND_INS = MappingOf(TextShape(expected="the name of an environment variable", parse=variable), STAND_IN)
EFFECT = OneOf(CLASSES, description="read_only < write_limited < full < destructive")
LEVEL = OneOf(
    LEVELS, description="restricted: only the handles; isolated: direct I/O inside the grant; native: trusted"
)


CONNECTOR_LINE = Record({"connector": Field(NAME, required=True), "version": Field(VERSIONS)})
CONNECTOR_LIST = ListOf(Either((NAME, CONNECTOR_LINE)))
CONNECTOR_RULES = Record({"allow": Field(CONNECTOR_LIST), "deny": _several(NAME)})
CONNECTOR = TextShape(expected="a connector such as `github` or `github@2.1`", parse=ConnectorRef.parse)
DISTRIBUTION = TextShape(
    expected="the name of an installed distribution, such as `PyGithub`",
    pattern=r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?",
    examples=("PyGithub",),
)
DEFINITION = Record(
    {
        "hosts": _several(HOST, "where its tools may connect; leave it out to not narrow"),
        "secrets": _several(SECRET, "the secrets its tools may read; leave it out to not narrow"),
        "side_effect_class": Field(EFFECT, description="the strongest class its tools may have"),
        "version": Field(
            TextShape(expected="a version such as `2.1`, or a range such as `>=2.0`", parse=defined_versions),
            description="what runs must be in this range; `2.1` is `==2.1.*`",
        ),
        "distribution": Field(DISTRIBUTION, description="the installed distribution whose version counts"),
    }
)
LIMITS = Record(
    {
        "wall_seconds": Field(Integer(1)),
        "cpu_seconds": Field(Integer(1)),
        "memory_mb": Field(Integer(1)),
        "output_kb": Field(Integer(1)),
        "open_files": Field(Integer(16)),
        "processes": Field(Integer(1)),
        "file_mb": Field(Integer(1)),
        "scratch_mb": Field(Integer(1)),
        "host_memory_mb": Field(Integer(1)),
        "host_files": Field(Integer(16)),
        "waiting_kb": Field(Integer(1)),
        "request_headers": Field(Integer(1)),
        "written_paths": Field(Integer(1)),
        "fuel": Field(Integer(1)),
    },
    description="the most a call may use before it is ended",
)
DECLARATION = Record(
    {
        "from": Field(
            TextShape(
                expected="`package.module:function`",
                pattern=r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*",
                examples=("weather.tools:fetch_weather",),
            ),
            description="where the tool is declared; its source is read, never imported",
        ),
        "needs": _several(RULE, "what the tool touches"),
        "optional": _several(RULE, "what it uses where it is allowed, and can do without"),
        "effect": Field(EFFECT, description="what its calls do to the world"),
        "sandbox": Field(LEVEL, description="the level it runs at"),
        "connector": Field(
            CONNECTOR,
            description="the connector it uses",
        ),
        "cost_usd": Field(Money(), description="the most that one call costs"),
    }
)
SECRETS_BY_NAME = MappingOf(
    TextShape(expected="the name of an environment variable", parse=variable),
    Either(
        (
            TextShape(expected="a secret reference", parse=secret_reference),
            Record({"secret": Field(_REFERENCE.shape, required=True, description=_REFERENCE.description), **_PLACED}),
        )
    ),
)
ARGUMENT_RULES = Field(
    MappingOf(TextShape(expected="the name of an argument"), AnyJson()),
    description="JSON Schema per argument; `scope` ties a value to the grant, `ask` asks about values, `free` unties; "
    "`flow`, `from`, `of` and `always` say where it must come from",
)
_WORDS = ListOf(
    TextShape(expected="the beginning of a word, such as `delet`", pattern=r"\S{1,64}", examples=("delet", "remov")),
    least=1,
)
ASKED_BY = Field(
    Either((_WORDS, MappingOf(TextShape(expected="a language, such as `en`", pattern=r"[A-Za-z-]{2,16}"), _WORDS))),
    description="beginnings of words, one of which the task must have; a list, or lists by language",
)
SERVER_TOOL = Record(
    {
        "needs": _several(RULE, "what it touches; left out, all that its server holds"),
        "optional": _several(RULE),
        "effect": Field(
            EFFECT, description="what its calls do to the world; annotations of the server only tighten it"
        ),
        "args": ARGUMENT_RULES,
        "asked_by": ASKED_BY,
        "approval": Field(OneOf(WRITE_APPROVALS)),
        "limits": Field(LIMITS),
        "cost_usd": Field(Money(), description="the most that one call costs"),
        "hidden": Field(
            OneOf(("keep", "show")), description="hidden characters in its results: passed on, or written out"
        ),
    }
)
SERVER_CLIENT = Record(
    {
        "sampling": Field(OneOf(CLIENT_ASKS), description="whether the server may have the client ask its model"),
        "elicitation": Field(OneOf(CLIENT_ASKS), description="whether the server may ask the client's user"),
        "roots": _several(PATH, "directories of the client that the server may be told of"),
        "logging": Field(Flag(), description="whether its log messages are passed on"),
        "max_asks": Field(
            Integer(0, MOST_ASKS),
            description="how often it may ask for sampling, elicitation and roots in one call; 10 if left out",
        ),
    },
    description="what the server may ask of the client; what is left out is denied",
)
_ALL = OneOf((EVERY,))
SERVER = Record(
    {
        "command": Field(ListOf(TextShape(expected="a command word"), least=1), description="the program to start"),
        "code": _several(PATH, "directories of its own files: on its import path, in the lock, and closed as a whole"),
        "url": Field(
            TextShape(expected="an address such as `https://mcp.example.com/mcp`", parse=server_url),
            description="a server on another machine, instead of a command",
        ),
        "headers": Field(
            MappingOf(
                TextShape(expected="the name of a header", pattern=r"[A-Za-z][A-Za-z0-9-]{0,63}"),
                TextShape(expected="a secret reference", parse=secret_reference),
            ),
            description="headers set to secrets, for a `url`",
        ),
        "connector": Field(CONNECTOR, description="the connector it is; its grants must fit the definition"),
        "grants": _several(RULE, "what the server process may touch"),
        "env": _several(TextShape(expected="the name of an environment variable", parse=variable), "passed on to it"),
        "secrets": Field(
            SECRETS_BY_NAME, description="variables set to secrets; of one with `hosts`, the process sees a stand-in"
        ),
        "inspect": INSPECT,
        "tools": Field(
            MappingOf(TextShape(expected='the name of a tool, or `"*"`', parse=_or_star(name)), SERVER_TOOL),
            description='its tools; `"*"` is for those without an entry, and a tool without either is refused',
        ),
        "resources": Field(
            Either((_ALL, ListOf(TextShape(expected="the beginning of a URI, such as `file:///srv/data`")))),
            description="resources that may be read, by whole segments; none if left out",
        ),
        "prompts": Field(
            Either((_ALL, ListOf(TextShape(expected="the name of a prompt")))),
            description="prompts that may be used; none if left out",
        ),
        "client": Field(SERVER_CLIENT),
        "limits": Field(LIMITS, description="of its process; a call has the limits of its tool"),
        "sandbox": Field(
            OneOf(("isolated", "native")), description="native: without walls, if the manifest's `native` names it too"
        ),
    }
)
PUBLIC_KEY = TextShape(
    expected="a public key `ed25519:…`", pattern=r"ed25519:[A-Za-z0-9+/=_-]{40,100}", parse=checked_key
)
APPROVALS = Record(
    {
        "write": Field(
            OneOf(WRITE_APPROVALS),
            description="when writes need approval: at each call, once a session, or never if the manifest is pinned",
        ),
        "expires_seconds": Field(Integer(1)),
        "quorum": Field(Integer(1)),
        "delete": Field(
            OneOf(WRITE_APPROVALS),
            description="when deletes and renames of files ask: each, once a session, or not under a standing approval",
        ),
        "through_client": Field(
            Flag(), description="whether a yes of the gateway's client approves; false if left out"
        ),
        "keys": Field(
            Either((ListOf(PUBLIC_KEY), MappingOf(NAME, PUBLIC_KEY))),
            description="whose signatures approve: a list, or a mapping from the names of their owners",
        ),
    }
)
BUDGET = Record(
    {
        "max_calls_per_session": Field(Integer(0), description="calls of all tools in a session"),
        "max_calls_per_day": Field(Integer(0), description="calls of this agent on a day, in all its sessions"),
        "max_cost_usd": Field(Money(), description="money in a session"),
        "max_cost_usd_per_day": Field(Money(), description="money of this agent on a day, in all its sessions"),
    }
)
BUNDLE = Record(
    {
        "tools": Field(ListOf(NAME), required=True, description="closed: what is not listed is not in it"),
        "sandbox": Field(LEVEL, description="the loosest level its tools may have"),
        "side_effect_class": Field(EFFECT, description="the strongest class its tools may have"),
        "destinations": _several(HOST, "narrows where its tools may connect; leave it out to not narrow"),
        "limits": Field(LIMITS),
        "budget": Field(BUDGET, description="counted over all its tools together, besides the manifest's own"),
        "approvals": Field(APPROVALS, description="the stricter value of each key counts"),
        "connectors": Field(
            CONNECTOR_LIST, description="narrows the connectors of its tools; leave it out to not narrow"
        ),
        "private": _several(CIDR, "narrows `private` for its tools; leave it out to not narrow"),
        "inspect": Field(INSPECT.shape, description="looked into for its tools, too"),
        "stand_ins": Field(STAND_INS, description="narrows the keys of its tools"),
    }
)
DESTINATIONS = Record(
    {
        "allow": _several(HOST, "an empty list reaches nothing"),
        "deny": _several(HOST, "wins over every allow"),
        "default": Field(OneOf(("deny",)), description="what is not allowed is denied; there is no other default"),
    }
)
WORKSPACE_FIELDS = {
    "tools": Field(MappingOf(NAME, DECLARATION), description="what each tool declares"),
    "servers": Field(
        MappingOf(
            TextShape(
                expected="a name of 1 to 32 lower-case letters, digits or `-` that starts with a letter",
                pattern=SERVER_NAME,
                examples=("files",),
            ),
            SERVER,
        ),
        description="MCP servers behind the gateway",
    ),
    "gateway": Field(
        Record({"names": Field(OneOf(("plain", "prefixed")), description="`tool`, or `server__tool`")}),
        description="how clients of the gateway see names; left out, plain if there is one server",
    ),
    "bundles": Field(MappingOf(NAME, BUNDLE), description="tools that are governed together"),
    "connectors": Field(
        Record(
            {
                "tenant_allowlist": Field(CONNECTOR_LIST),
                "definitions": Field(
                    MappingOf(NAME, DEFINITION), description="what a connector is; its tools must fit"
                ),
                "app_overrides": Field(MappingOf(NAME, CONNECTOR_RULES)),
            }
        ),
        description="connectors that are not listed are denied",
    ),
    "destinations": Field(DESTINATIONS, description="narrows where every agent of this workspace may connect"),
}
TOOL_ENTRY = Record(
    {
        "sandbox": Field(LEVEL),
        "side_effect_class": Field(EFFECT),
        "args": ARGUMENT_RULES,
        "asked_by": ASKED_BY,
        "approval": Field(OneOf(WRITE_APPROVALS)),
        "max_calls": Field(Integer(0), description="calls of this tool in a session"),
        "max_cost_usd": Field(Money(), description="money of this tool in a session"),
        "limits": Field(LIMITS),
    }
)
# What a ceiling may have. A key either becomes rules, which `manifest_reader` says, or has its other half in the row of
# the same name in `core/policy/keys.py`.
CAPABILITY_FIELDS = {
    "bundles": _several(NAME, "bundles of the workspace that are assigned to this agent"),
    "tools": Field(
        Either((ListOf(NAME), MappingOf(NAME, TOOL_ENTRY))),
        description="tools without a bundle, or more about single tools",
    ),
    "max_side_effect_class": Field(EFFECT, description="read_only if left out"),
    "destinations": Field(DESTINATIONS, description="where tools may connect"),
    "private": _several(CIDR, "private addresses that allowed names may resolve to"),
    "fs_reach": Field(
        Record(
            {
                "read": _several(PATH),
                "write": _several(PATH, "to write and to delete; the class decides on deletes"),
                "output": _several(PATH, "directories to write in; a missing one is made before a program starts"),
            }
        )
    ),
    "env": _several(VARIABLE, "environment variables that tools may read"),
    "secrets": _several(SECRET, "secrets that tools may read"),
    "process": Field(Record({"allowed_binaries": Field(ListOf(BINARY), aliases=("allowedBinaries",))})),
    "storage": _several(OneOf(STORAGE_KINDS), "`tool-private` and `session` are always there"),
    "connectors": Field(CONNECTOR_LIST),
    "grants": _several(RULE, "further rules, for what the keys above cannot say"),
    "deny": _several(RULE, "wins over every allow"),
    "inspect": INSPECT,
    "stand_ins": Field(STAND_INS, description="by variable"),
    "native": _several(NAME, "trusted tools that may run in this process"),
    "approvals": Field(APPROVALS),
    "budget": Field(BUDGET),
    "limits": Field(LIMITS),
    "sandbox": Field(Record({"allow_degraded": Field(Flag())})),
    "record": Field(OneOf(("digests", "full")), description="what receipts keep of arguments and results"),
}
SOURCE_LABELS = tuple(label for label in LABELS if label != "ack")  # a rule confirms nothing
LABEL = OneOf(LABELS, description="untrusted < identity < trusted < authored; ack: a confirmation")
FIELD = TextShape(
    expected="a field such as `sender` or `sender/email`, without indices of lists",
    parse=result_field,
    examples=("sender", "sender/email"),
)
FIELDS = MappingOf(FIELD, LABEL, description="by field; all others are untrusted")


class LabelRecord(Record, frozen=True):
    """The long form of labels. A mapping with any other key is one of fields."""

    def fits(self, node: Node) -> bool:
        return isinstance(node, Mapping) and node.entries.keys() <= self.fields.keys() and bool(node.entries)


_LABEL_FIELDS = {
    "under": Field(
        MappingOf(TextShape(expected="the name of an argument"), PATH),
        description="paths at or below which arguments must lie; the first entry that fits counts",
    ),
    "label": Field(LABEL, description="of all fields that `fields` does not name; untrusted if left out"),
    "fields": Field(FIELDS, description="by field"),
    "creates": Field(Flag(), description="whether its confirmation names what the call has made"),
}
SECRET_OF_TOOL = Record(
    {
        "tool": Field(NAME, required=True, description="a tool whose results are secret"),
        "fields": Field(ListOf(FIELD, least=1), description="only these fields of them"),
    }
)
# What it means is in `core/policy/flow_terms.py`.
FLOW = Record(
    {
        "preset": Field(OneOf(PRESETS), description="what is asked about; off if left out"),
        "otherwise": Field(
            OneOf(("ask", "deny")), description="what happens to a call that is not met; ask if left out"
        ),
        "own": _several(
            TextShape(expected="a domain such as `example.com`, which counts with all below it", parse=own_domain),
            "domains of the operator: identities there count as trusted",
        ),
        "results": Field(
            MappingOf(NAME, Either((LABEL, ListOf(Record(_LABEL_FIELDS)), LabelRecord(_LABEL_FIELDS), FIELDS))),
            description="who wrote the results of a tool: a label, labels by field, or entries by argument",
        ),
        "sources": _several(
            Record({"use": Field(RULE, required=True), "label": Field(OneOf(SOURCE_LABELS), required=True)}),
            "labels of what is read through a rule; the weakest that covers it counts",
        ),
        "secrets": _several(
            Record(
                {
                    "from": Field(Either((RULE, SECRET_OF_TOOL)), required=True, description="what is secret"),
                    "readers": Field(ListOf(RULE), required=True, description="where it may then be sent"),
                }
            ),
            "after one of them was read, writes and the network are only for its readers",
        ),
        "task": Field(OneOf(("host", "prompt")), description="prompt: the prompt of a headless run is the task"),
        "task_through_client": Field(Flag(), description="whether a client of a gateway may say the task"),
    },
    description="where the values of calls must come from, once a session has read what others wrote",
)
EXAMPLE = Record({"tool": Field(NAME, required=True), "use": Field(USE, required=True)})
MANIFEST_FIELDS = {
    "agent": Field(NAME, required=True, description="the agent this manifest is for"),
    "version": Field(TextShape(expected='a version in quotes, such as `"1.0"`')),
    "app": Field(NAME, description="the app whose connector overrides apply"),
    "capabilities": Field(Record(CAPABILITY_FIELDS), description="what the agent may touch; what is absent is denied"),
    "flow": Field(FLOW, description="where values must come from, once a session has read what others wrote"),
    "examples": Field(
        Record({"match": _several(EXAMPLE), "no_match": _several(EXAMPLE)}),
        description="uses that must and must not be allowed; `licet test` runs them",
    ),
}

# The keys of an organisation file. Each only narrows, and is read as the key of that name in a manifest or workspace.
ORGANISATION_FIELDS = {
    "destinations": Field(DESTINATIONS, description="narrows where every agent of this machine may connect"),
    "connectors": Field(CONNECTOR_RULES, description="narrows the connectors of every agent"),
    "max_side_effect_class": Field(EFFECT, description="the strongest class that any tool may have"),
    "approvals": Field(APPROVALS, description="the stricter value of each key counts"),
    "budget": Field(BUDGET, description="the most that each agent may spend; the smaller value of each key counts"),
    "inspect": Field(INSPECT.shape, description="HTTPS of programs that is looked into, too"),
    "flow": Field(FLOW, description="the stricter value of each key that it has counts"),
}

FORMAT = 1  # the version of the keys of policy files and their meaning
FORMAT_FIELDS = {"licet": Field(Integer(1, FORMAT), description="the format of this file; 1 if left out")}

WORKSPACE = Record(WORKSPACE_FIELDS | FORMAT_FIELDS)
MANIFEST = Record(MANIFEST_FIELDS | WORKSPACE_FIELDS | FORMAT_FIELDS)
PERSONALITY = Record(
    {
        "id": Field(NAME, required=True, description="the personality"),
        **CAPABILITY_FIELDS,
        "tools": Field(CAPABILITY_FIELDS["tools"].shape, aliases=("toolset",), description="tools it may use"),
        "safety": Field(
            Record({"network": Field(Record({"allow": _several(HOST), "deny": _several(HOST)}))}),
            description="another name of `destinations`",
        ),
        "flow": Field(FLOW, description="the stricter value of each key counts; without it, that of the manifest"),
        **FORMAT_FIELDS,
    }
)
ORGANISATION = Record(ORGANISATION_FIELDS | FORMAT_FIELDS)
SHAPES = {"workspace": WORKSPACE, "manifest": MANIFEST, "personality": PERSONALITY, "organisation": ORGANISATION}
DESCRIPTIONS = {
    "workspace": "A licet workspace: tools, bundles, connectors, destinations and servers that agents share.",
    "manifest": "A licet manifest: what one agent may touch. What is absent is denied.",
    "personality": "A licet personality: a second ceiling that a manifest is narrowed by.",
    "organisation": "What an organisation says about every agent of a machine: /etc/licet/organisation.yaml.",
}


_KNOWN = {name for shape in SHAPES.values() for name in shape.fields}

# Keys in a text that cannot be parsed: at the start of a line, or inside braces.
_BLOCK_KEY = late_pattern(rb"^[\"']?([\w-]{1,64})[\"']?[ \t]*:", re.MULTILINE)
_FLOW_KEY = late_pattern(rb"[{,\s][\"']?([\w-]{1,64})[\"']?\s*:")


def foreign(node: Node | None, data: bytes, problems: Collection[Problem]) -> str:
    """A phrase for a file that is not policy, such as `a list`; empty if it may be policy.

    `node` and `problems` are the results of reading `data`.
    """
    match node:
        case Scalar():
            return "text"
        case Sequence():
            return "a list"
        case Mapping() if node.entries:
            return "" if _like_policy(node.entries) else "a mapping with other keys"
    if not any(map(_quotes, problems)):
        return ""  # empty or not text: the message then quotes nothing from the file
    keys = (_FLOW_KEY if data.lstrip()[:1] == b"{" else _BLOCK_KEY).finditer(data)
    return "" if _like_policy(key[1].decode("ascii") for key in keys) else "what cannot be read as keys"


def _quotes(problem: Problem) -> bool:
    return not {"`", "'", '"'}.isdisjoint(problem.found + problem.hint)


def _like_policy(keys: Iterable[str]) -> bool:
    return any(key in _KNOWN or did_you_mean(key, _KNOWN, []) for key in islice(keys, MOST_KEYS_LOOKED_AT))
