"""A realistic tool call: tool, effect, host, path and capability strings, against one agent's manifest.

30 tools in 5 bundles, 20 hosts and 15 paths, some of them denied. One bundle is not assigned, one exceeds the agent's
class, one narrows the hosts. This module writes the same agent for licet (as its file), the floor and two peers.
"""

import functools
import json
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from benchmarks.floors import (
    FloorCall,
    Sets,
    call_floor,
    fold,
    host_key,
    host_keys,
    path_keys,
    walking_host_floor,
    walking_path_floor,
)
from benchmarks.harness import Contestant
from benchmarks.peers import cedar_uid, load, tenuo_hosts, tenuo_paths, tenuo_warrant
from benchmarks.worlds import REQUESTS, host_in, path_in
from licet import Use, load_manifest, use_of_path, use_of_url
from licet.core.decision.decide import decide
from licet.core.decision.decision import Allow
from licet.core.decision.request import Request, Usage

__all__ = ["CALL_PEERS", "SIZE", "Call", "floor_calls", "licet_calls", "requests"]

SIZE = "30 tools"

# Bundle: its class, and whether the agent may use it.
READING, NARROWED, WRITING, UNASSIGNED, EXCEEDING = "research", "support", "reports", "ops", "admin"
CLASSES = {
    READING: "read_only",
    NARROWED: "read_only",
    WRITING: "write_limited",
    UNASSIGNED: "write_limited",
    EXCEEDING: "full",
}
TOOLS = {bundle: [f"{bundle}_{i}" for i in range(6)] for bundle in CLASSES}

HOSTS = [f"api{i}.partner{i}.example" for i in range(12)] + [f"*.zone{i}.acme.test" for i in range(5)]
NO_HOSTS = ["vault.zone0.acme.test", "*.admin.zone1.acme.test", "metrics.zone2.acme.test"]
NARROW_HOSTS = ["api0.partner0.example", "*.zone0.acme.test"]
READS = [f"/srv/agent/data{i}" for i in range(8)]
WRITES = [f"/srv/agent/out{i}" for i in range(4)]
NO_PATHS = ["/srv/agent/data0/.env", "/srv/agent/data1/private", "/srv/agent/out0/.git"]
SECRETS = ["WEATHER_API_KEY", "github/token", "slack/token", "PARTNER_KEY"]
VARIABLES = ["PATH", "LANG"]


class Call(NamedTuple):
    """The acts of a tool in one call."""

    tool: str
    method: str
    host: str
    action: str
    path: str
    secret: str
    variable: str


def requests() -> tuple[list[Call], list[bool]]:
    """Calls in random order, half of them allowed; the others differ from an allowed one in a single part."""
    chosen = random.Random(7)
    asked: list[tuple[Call, bool]] = []
    while len(asked) < REQUESTS:
        asked += [(call, _allowed(call)) for call in _one_of_each(chosen)]
    chosen.shuffle(asked)
    calls, expected = [call for call, _ in asked], [verdict for _, verdict in asked]
    if sum(expected) * 2 != len(expected):
        raise AssertionError("half of the calls should be allowed")
    return calls, expected


def _one_of_each(chosen: random.Random) -> list[Call]:
    i, out = chosen.randrange(8), chosen.randrange(4)
    name, secret, variable = chosen.randrange(6), chosen.choice(SECRETS), chosen.choice(VARIABLES)
    read = Call(
        f"research_{name}", "GET", f"api{i}.partner{i}.example", "read", f"{READS[i]}/2024/a.csv", secret, variable
    )
    write = Call(
        f"reports_{name}", "POST", f"in.zone{out}.acme.test", "write", f"{WRITES[out]}/report.md", secret, variable
    )
    help_ = Call(f"support_{name}", "GET", "kb.zone0.acme.test", "read", f"{READS[i]}/faq.txt", secret, variable)
    deep = read._replace(host=f"a.b.zone{i % 5}.acme.test", path=f"{READS[i]}/x/y/z.json")
    return [
        *(
            read,
            write,
            help_,
            deep,
            write._replace(host="api11.partner11.example"),
            help_._replace(host=NARROW_HOSTS[0]),
        ),
        read._replace(tool=f"ops_{name}"),
        read._replace(tool=f"admin_{name}"),
        read._replace(method="POST"),
        write._replace(host="vault.zone0.acme.test"),
        chosen.choice(
            [read._replace(path="/srv/agent/data1/private/key"), write._replace(path="/srv/agent/out0/.git/config")]
        ),
        chosen.choice([read._replace(secret="stripe/key"), help_._replace(host="api9.partner9.example")]),
    ]


def _allowed(call: Call) -> bool:
    bundle = call.tool.partition("_")[0]
    if bundle not in (READING, NARROWED, WRITING):
        return False
    writes = bundle == WRITING
    return (
        (call.method == "GET" or writes)
        and host_in(call.host, HOSTS)
        and not host_in(call.host, NO_HOSTS)
        and (bundle != NARROWED or host_in(call.host, NARROW_HOSTS))
        and (path_in(call.path, READS) if call.action == "read" else writes and path_in(call.path, WRITES))
        and not path_in(call.path, NO_PATHS)
        and call.secret in SECRETS
        and call.variable in VARIABLES
    )


# The floor -----------------------------------------------------------------------------------------------------------


def floor_tools() -> dict[str, dict[str, Sets]]:
    """Per tool, the sets for each act that its class permits; tools that may not run have none."""
    hosts = fold(map(host_key, HOSTS), map(host_key, NO_HOSTS), walking_host_floor)
    narrow = fold(map(host_key, NARROW_HOSTS), map(host_key, NO_HOSTS), walking_host_floor)
    reads, writes = fold(READS, NO_PATHS, walking_path_floor), fold(WRITES, NO_PATHS, walking_path_floor)
    secrets, variables = (frozenset(SECRETS),) * 2, (frozenset(VARIABLES),) * 2
    reading = {"GET": hosts, "read": reads, "secret": secrets, "env": variables}
    narrowed = {**reading, "GET": narrow}
    writing = {**reading, "POST": hosts, "write": writes}
    bundles = {READING: reading, NARROWED: narrowed, WRITING: writing}
    return {tool: acts for bundle, acts in bundles.items() for tool in TOOLS[bundle]}


def floor_call(call: Call) -> FloorCall:
    """A call with the keys of its parts, as the floor takes it."""
    uses = (
        (call.method, host_keys(call.host)),
        (call.action, path_keys(call.path)),
        ("secret", (call.secret,)),
        ("env", (call.variable,)),
    )
    return call.tool, uses


def floor_calls(asked: Sequence[Call]) -> Contestant:
    """The floor. Like licet's `decide`, it gets the policy with each call."""
    tools = floor_tools()

    def answer(call: FloorCall) -> bool:
        return call_floor(call, tools)

    return Contestant("floor", answer, [floor_call(call) for call in asked])


# licet ---------------------------------------------------------------------------------------------------------------

_NEEDS = ["network:*:*", "fs:*:*", "secret:read:*", "env:read:*"]


def agent_yaml() -> str:
    """The agent as licet's own file, workspace and manifest in one."""
    return json.dumps(
        {
            "tools": {
                tool: {"needs": _NEEDS, "effect": effect, "sandbox": "restricted"}
                for bundle, effect in CLASSES.items()
                for tool in TOOLS[bundle]
            },
            "bundles": {
                bundle: {
                    "tools": TOOLS[bundle],
                    "sandbox": "restricted",
                    "side_effect_class": effect,
                    **({"destinations": NARROW_HOSTS} if bundle == NARROWED else {}),
                }
                for bundle, effect in CLASSES.items()
            },
            "agent": "bench",
            "version": "1.0",
            "capabilities": {
                "bundles": [READING, NARROWED, WRITING, EXCEEDING],
                "max_side_effect_class": "write_limited",
                "destinations": {"allow": HOSTS, "deny": NO_HOSTS},
                "fs_reach": {"read": READS, "write": WRITES},
                "deny": [f"fs:*:{path}" for path in NO_PATHS],
                "secrets": SECRETS,
                "env": VARIABLES,
                "approvals": {"write": "manifest"},
            },
        },
        indent=2,
    )


def licet_calls(asked: Sequence[Call]) -> Contestant:
    """licet: `decide` on the loaded manifest. Uses are parsed before the clock starts, like the keys of the floor."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "agent.yaml")
        path.write_text(agent_yaml(), encoding="utf-8")
        manifest = replace(load_manifest(path), pinned="licet.lock")  # otherwise writes need approval
    usage = Usage()

    def uses(call: Call) -> tuple[Use, ...]:
        return (
            use_of_url(call.method, f"https://{call.host}/"),
            use_of_path(call.action, call.path),
            Use.parse(f"secret:read:{call.secret}"),
            Use.parse(f"env:read:{call.variable}"),
        )

    def answer(request: Request) -> Any:
        return decide(request, manifest, usage)

    prepared = [Request(tool=call.tool, uses=uses(call)) for call in asked]
    return Contestant("licet", answer, prepared, lambda decision: isinstance(decision, Allow))


# Peers ---------------------------------------------------------------------------------------------------------------


def tenuo_calls(asked: Sequence[Call]) -> Contestant:
    """tenuo: one warrant with a capability per tool that may run; arguments are a plain mapping."""
    tenuo = load("tenuo_core")

    def but(reach: Any, deny: Any) -> Any:
        return tenuo.All([reach, tenuo.Not(deny)])

    def acts(methods: list[str], hosts: Sequence[str], actions: list[str], paths: Sequence[str]) -> dict[str, Any]:
        return {
            "method": tenuo.OneOf(methods),
            "host": but(tenuo_hosts(tenuo, hosts), tenuo_hosts(tenuo, NO_HOSTS)),
            "action": tenuo.OneOf(actions),
            "path": but(tenuo_paths(tenuo, paths), tenuo_paths(tenuo, NO_PATHS)),
            "secret": tenuo.OneOf(SECRETS),
            "variable": tenuo.OneOf(VARIABLES),
        }

    # A warrant cannot tie the path to the action. No call here reads with a writing tool, so one list is enough.
    reading, narrowed = acts(["GET"], HOSTS, ["read"], READS), acts(["GET"], NARROW_HOSTS, ["read"], READS)
    writing = acts(["GET", "POST"], HOSTS, ["write"], WRITES)
    bundles = {READING: reading, NARROWED: narrowed, WRITING: writing}
    granted = {tool: bundles[bundle] for bundle in bundles for tool in TOOLS[bundle]}
    check = tenuo_warrant(tenuo, granted).check_constraints
    prepared = [
        (call.tool, {name: value for name, value in call._asdict().items() if name != "tool"}) for call in asked
    ]

    def answer(call: tuple[str, dict[str, str]]) -> Any:
        return check(call[0], call[1])

    return Contestant("tenuo", answer, prepared, lambda refusal: refusal is None)


_CEDAR_COMMON = """
  principal.hosts.containsAny(context.hosts) && !principal.no_hosts.containsAny(context.hosts) &&
  !principal.no_paths.containsAny(context.paths) &&
  principal.secrets.contains(context.secret) && principal.variables.contains(context.variable)
"""
_CEDAR_READS = """
  context.method == "GET" && context.action == "read" && principal.reads.containsAny(context.paths)
"""
_CEDAR_POLICIES = f"""
permit (principal, action in Action::"{READING}", resource) when {{ {_CEDAR_READS} && {_CEDAR_COMMON} }};
permit (principal, action in Action::"{NARROWED}", resource) when {{
  {_CEDAR_READS} && principal.narrow.containsAny(context.hosts) && {_CEDAR_COMMON} }};
permit (principal, action in Action::"{WRITING}", resource) when {{
  (if context.action == "read" then principal.reads else principal.writes).containsAny(context.paths) &&
  {_CEDAR_COMMON} }};
"""


def cedar_calls(asked: Sequence[Call]) -> Contestant:
    """cedarpy: tools are actions in their bundle, the agent's rules are sets, and the context is encoded beforehand."""
    cedarpy = load("cedarpy")
    lists = {
        "hosts": HOSTS,
        "no_hosts": NO_HOSTS,
        "narrow": NARROW_HOSTS,
        "reads": READS,
        "writes": WRITES,
        "no_paths": NO_PATHS,
        "secrets": SECRETS,
        "variables": VARIABLES,
    }
    graph: list[dict[str, Any]] = [{"uid": cedar_uid("Agent", "a"), "attrs": lists, "parents": []}]
    for bundle, tools in TOOLS.items():
        graph.append({"uid": cedar_uid("Action", bundle), "attrs": {}, "parents": []})
        parent = cedar_uid("Action", bundle)
        graph += [{"uid": cedar_uid("Action", tool), "attrs": {}, "parents": [parent]} for tool in tools]
    policies = cedarpy.PolicySet.from_str(_CEDAR_POLICIES)
    entities = cedarpy.Entities.from_json_str(json.dumps(graph))

    def prepared(call: Call) -> dict[str, Any]:
        hosts = [f"*{key}" if key[:1] in (".", "") else key for key in host_keys(call.host)]
        context = {"hosts": hosts, "paths": path_keys(call.path), "secret": call.secret, "variable": call.variable}
        return {
            "principal": cedar_uid("Agent", "a"),
            "action": cedar_uid("Action", call.tool),
            "resource": cedar_uid("Call", "c"),
            "context": json.dumps({**context, "method": call.method, "action": call.action}),
        }

    answer = functools.partial(cedarpy.is_authorized, policies=policies, entities=entities)
    return Contestant("cedarpy", answer, [prepared(call) for call in asked], lambda result: result.allowed)


CALL_PEERS: dict[str, Callable[[Sequence[Call]], Contestant]] = {"tenuo": tenuo_calls, "cedarpy": cedar_calls}
