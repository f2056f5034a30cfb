"""What one call, a delegate or the process of a server has of what is looked into and placed, and what explain says."""

from typing import Any

import pytest
from msgspec.structs import replace

from licet import Manifest
from licet.core.algebra.rules import Capability, Use
from licet.core.decision.decide import decide
from licet.core.decision.decision import Allow, Decision, Deny
from licet.core.decision.foreseen import foreseen, process_reach
from licet.core.decision.placing import commands_inspected, handed_over, inspection_of, placing_problems, word_notes
from licet.core.decision.reach import Reach, reach_of
from licet.core.decision.request import Request
from licet.core.policy.inspection import Inspection
from licet.core.policy.layer import EVERY_DOMAIN, Layer, Rule
from licet.core.policy.manifest import (
    COMMAND_NEEDS,
    COMMANDS,
    command_needs,
    connection_of_command,
    document,
    with_commands,
)
from licet.core.policy.manifest_fields import Organisation
from licet.core.policy.servers import servers_of
from licet.core.review.surface import surface
from licet.core.values import Origin

HERE = Origin("x.yaml", 1, 1)
TOKEN = {"secret": "github/token", "hosts": ["api.github.com"]}
CODER: dict[str, Any] = {
    "max_side_effect_class": "write_limited",
    "approvals": {"write": "session"},
    "process": {"allowed_binaries": ["git"]},
    "fs_reach": {"read": ["~"]},
    "inspect": ["api.github.com", "*.example.com"],
    "secrets": ["github/token", "npm/token"],
    "grants": ["network:https:get@api.github.com", "network:tcp:api.github.com:443", "network:tcp:pypi.org:443"],
    "stand_ins": {
        "GITHUB_TOKEN": TOKEN,
        "NPM_TOKEN": {"secret": "npm/token", "hosts": ["npm.example.com"], "headers": ["x-npm"]},
    },
}
TOOLS = {"t": {"needs": ["process:exec:git", "secret:read:*"], "effect": "read_only", "sandbox": "isolated"}}


def policy(workspace: dict[str, Any] | None = None, *, less: dict[str, Any] | None = None, **more: Any) -> Manifest:
    return Manifest.from_data({"agent": "a", "capabilities": CODER | more}, workspace, less)


def names(inspection: Inspection) -> list[str]:
    return [entry.name for entry in inspection.stand_ins]


def of_tool(manifest: Manifest, tool: str = "t") -> Inspection:
    reach = reach_of(manifest, tool)
    assert reach is not None
    return inspection_of(reach)


def of_commands(manifest: Manifest) -> Inspection:
    return commands_inspected(with_commands(manifest.expand("/work", "/home/me")))


def test_a_command_has_all_that_its_policy_states() -> None:
    found = of_commands(policy())
    assert found.inspect == ("*.example.com", "api.github.com")
    assert names(found) == ["GITHUB_TOKEN", "NPM_TOKEN"]
    assert command_needs(policy()) == (*COMMAND_NEEDS, "secret:read:github/token", "secret:read:npm/token")


def test_a_policy_without_these_keys_means_what_it_meant() -> None:
    plain = policy(inspect=[], stand_ins={})
    assert command_needs(plain) == COMMAND_NEEDS
    assert not of_commands(plain)
    assert not {"inspect", "stand_ins"} & document(plain).keys()
    assert not {"inspect", "stand_ins"} & surface(plain).document().keys()
    assert plain.values == {"inspect": (), "stand_ins": ()}


def test_a_tool_has_the_keys_whose_secrets_it_holds() -> None:
    workspace = {"tools": TOOLS | {"u": TOOLS["t"] | {"needs": ["process:exec:git", "secret:read:npm/token"]}}}
    manifest = policy(workspace, tools=["t", "u"])
    assert names(of_tool(manifest)) == ["GITHUB_TOKEN", "NPM_TOKEN"]
    assert names(of_tool(manifest, "u")) == ["NPM_TOKEN"]
    assert of_tool(manifest, "u").inspect == ("*.example.com", "api.github.com")


BUNDLES: dict[str, tuple[dict[str, Any], tuple[str, ...], list[str]]] = {
    # what a bundle says, what is looked into besides, and the keys that remain
    "nothing": ({}, (), ["GITHUB_TOKEN", "NPM_TOKEN"]),
    "another host": ({"inspect": ["z.test"]}, ("z.test",), ["GITHUB_TOKEN", "NPM_TOKEN"]),
    "no key": ({"stand_ins": {}}, (), []),
    "one key": ({"stand_ins": {"GITHUB_TOKEN": TOKEN}}, (), ["GITHUB_TOKEN"]),
    "a key elsewhere": ({"stand_ins": {"GITHUB_TOKEN": TOKEN | {"hosts": ["z.test"]}}}, (), []),
    "a key of another source": ({"stand_ins": {"GITHUB_TOKEN": TOKEN | {"secret": "npm/token"}}}, (), []),
    "a key that the agent has not": ({"stand_ins": {"OTHER": TOKEN}}, (), []),
}


@pytest.mark.parametrize("case", BUNDLES)
def test_a_bundle_adds_hosts_and_narrows_keys(case: str) -> None:
    said, more, left = BUNDLES[case]
    manifest = policy({"tools": TOOLS, "bundles": {"b": {"tools": ["t"], **said}}}, bundles=["b"])
    assert of_tool(manifest).inspect == tuple(sorted((*more, "*.example.com", "api.github.com")))
    assert names(of_tool(manifest)) == left


def test_a_personality_adds_hosts_and_narrows_keys() -> None:
    secrets = {"id": "p", "secrets": ["github/token", "npm/token"]}
    assert names(of_commands(policy(less=secrets))) == []
    wide = {"inspect": ["*.github.com", "z.test"], "stand_ins": {"GITHUB_TOKEN": TOKEN | {"hosts": ["*.github.com"]}}}
    found = of_commands(policy(less=secrets | wide))
    assert found.inspect == ("*.example.com", "*.github.com", "z.test")
    (entry,) = found.stand_ins
    assert entry.hosts == ("api.github.com",)


def test_without_the_secret_there_is_no_key() -> None:
    manifest = policy()
    rules = (Rule(Capability("secret:read:npm/token"), HERE, "allow"),)
    layer = Layer("delegation", "the parent", HERE, rules, silent=EVERY_DOMAIN - {"secret"})
    delegate = replace(manifest, layers=(*manifest.layers, layer))
    assert names(of_commands(delegate)) == ["NPM_TOKEN"]
    assert of_commands(delegate).inspect == of_commands(manifest).inspect


def test_an_organisation_only_adds_hosts() -> None:
    above = Organisation(origin=HERE, inspect=("*.corp.test", "*.github.com"))
    manifest = policy()
    narrowed = manifest.under(above)
    assert narrowed.digest == manifest.digest
    assert of_commands(narrowed).inspect == ("*.corp.test", "*.example.com", "*.github.com")
    assert names(of_commands(narrowed)) == ["GITHUB_TOKEN", "NPM_TOKEN"]
    assert above.digest != replace(above, inspect=()).digest == Organisation(origin=HERE).digest


def test_a_key_in_a_file_needs_that_file_to_be_read() -> None:
    entry = {"file": "~/.npmrc", "field": "_authToken", "hosts": ["npm.example.com"]}
    (found,) = of_commands(policy(stand_ins={"NPM": entry})).stand_ins
    assert found.file == "/home/me/.npmrc"
    assert not of_commands(policy(stand_ins={"NPM": entry}, deny=["fs:read:~/.npmrc"])).stand_ins
    assert not commands_inspected(with_commands(policy(stand_ins={"NPM": entry}))).stand_ins  # no real directory yet


def test_a_bundle_names_the_same_file() -> None:
    entry = {"file": "~/.npmrc", "field": "_authToken", "hosts": ["npm.example.com"]}
    tool = TOOLS["t"] | {"needs": ["process:exec:git", "fs:read:*"]}
    workspace = {"tools": {"t": tool}, "bundles": {"b": {"tools": ["t"], "stand_ins": {"NPM": entry}}}}
    manifest = policy(workspace, bundles=["b"], stand_ins={"NPM": entry}).expand("/work", "/home/me")
    assert names(of_tool(manifest)) == ["NPM"]


# Servers -------------------------------------------------------------------------------------------------------------

SERVER = {
    "command": ["gh-mcp"],
    "grants": ["network:https:get@api.github.com"],
    "inspect": ["api.github.com", "uploads.github.com"],
    "secrets": {"TOKEN": TOKEN, "PLAIN": "npm/token"},
    "tools": {"*": {"effect": "read_only"}},
}


def of_server(manifest: Manifest) -> tuple[Reach, Inspection]:
    reach = process_reach(manifest, servers_of(manifest.servers)["gh"], ())
    return reach, inspection_of(reach)


def test_the_process_of_a_server_has_its_own_keys_alone() -> None:
    reach, found = of_server(policy({"servers": {"gh": SERVER}}))
    assert found.inspect == ("*.example.com", "api.github.com", "uploads.github.com")
    assert names(found) == ["TOKEN"]
    assert reach.grant.has(Use("secret:read:github/token"))


def test_a_server_gets_no_key_whose_secret_the_agent_may_not_read() -> None:
    manifest = policy({"servers": {"gh": SERVER}}, secrets=["npm/token"], stand_ins={})
    _, found = of_server(manifest)
    assert names(found) == []


@pytest.mark.parametrize(("file", "real"), [("~/.npmrc", "/home/me/.npmrc"), ("${workdir}/.npmrc", "/srv/a/.npmrc")])
def test_a_file_of_a_server_is_below_a_real_directory(file: str, real: str) -> None:
    server = {**SERVER, "grants": ["fs:read:*"], "secrets": {"PLAIN": "npm/token"}}
    entry = {"file": file, "field": "t", "hosts": ["api.github.com"]}
    read = policy({"servers": {"gh": server}}, fs_reach={"read": ["~", "${workdir}"]})
    manifest = replace(read, servers={"gh": {**server, "secrets": {"PLAIN": "npm/token", "FILE": entry}}})
    _, found = of_server(manifest.expand("/srv/a", "/home/me"))
    assert [one.file for one in found.stand_ins] == [real]
    assert servers_of(manifest.expand("/srv/a", "/home/me").servers)["gh"].secrets == {"PLAIN": "npm/token"}


def test_a_secret_that_is_handed_over_has_a_note_with_the_other_form() -> None:
    (note,) = handed_over(policy({"servers": {"gh": SERVER, "far": {"url": "https://x.test", "headers": {"A": "k"}}}}))
    assert note.severity == "note"
    assert note.found == "`PLAIN: npm/token` of the server `gh`, which hands the value over"
    assert "`PLAIN: {secret: npm/token, hosts: [HOST]}` and `inspect: [HOST]`" in note.hint
    assert note.origin.pointer == "/servers/gh/secrets/PLAIN"


def test_a_header_that_took_the_key_after_any_word_has_a_note_with_the_other_form() -> None:
    bare = {**TOKEN, "headers": ["Authorization"]}
    named = {**TOKEN, "headers": ["Authorization: Bot {key}"]}
    served = {**SERVER, "grants": [], "secrets": {"THEIRS": bare, "OTHER": named}}
    read = policy({"servers": {"gh": served}}, stand_ins={"MINE": bare, "SAID": named, "USUAL": TOKEN})
    notes = list(word_notes(read))
    assert [note.origin.pointer for note in notes] == ["/capabilities/stand_ins/MINE", "/servers/gh/secrets/THEIRS"]
    assert {note.severity for note in notes} == {"note"}
    assert all("`authorization: Bot {key}`" in note.hint for note in notes)


# What a review says ---------------------------------------------------------------------------------------------------


def test_real_values_beside_a_stand_in_are_warned_about() -> None:
    entry = {"file": "/srv/token", "field": "t", "hosts": ["npm.example.com"]}
    manifest = policy(env=["GITHUB_TOKEN"], stand_ins={"GITHUB_TOKEN": TOKEN, "OTHER": entry})
    found = list(placing_problems(manifest, "/work", "/home/me"))
    assert [(one.found, one.severity) for one in found] == [
        ("`GITHUB_TOKEN` under `env`, too", "warning"),
        ("`/srv/token`, which programs may not read", "warning"),
    ]
    assert [one.origin.pointer for one in found] == [
        "/capabilities/stand_ins/GITHUB_TOKEN",
        "/capabilities/stand_ins/OTHER",
    ]
    assert list(placing_problems(policy(), "/work", "/home/me")) == []


IN_REACH = {
    "beside it": ("${workdir}/.env", {"write": ["${workdir}"]}, True),
    "below it": ("${workdir}/config/app.env", {"write": ["${workdir}"]}, True),
    "read alone": ("~/.npmrc", {"read": ["~"]}, True),
    "everything": ("/srv/token", {"read": ["/"]}, True),
    "another": ("~/.npmrc", {"read": ["~/.npmrc"], "write": ["${workdir}"]}, False),
    "deeper": ("/srv/token", {"read": ["/srv/token"], "write": ["/srv/more"]}, False),
    "the file alone": ("/srv/token", {"read": ["/srv/token"], "write": ["/srv/token"]}, False),
}


@pytest.mark.parametrize("case", IN_REACH)
def test_a_key_file_in_a_directory_that_programs_reach_is_refused(case: str) -> None:
    file, reach, refused = IN_REACH[case]
    entry = {"file": file, "field": "t", "hosts": ["npm.example.com"]}
    closed = policy(fs_reach={"read": [file], **reach}, stand_ins={"NPM": entry})
    found = list(placing_problems(closed, "/work", "/home/me"))
    assert [one.found for one in found] == [
        f"`{file}` of the stand-in `NPM`, in a directory that programs reach"
    ] * refused
    for one in found:
        assert one.severity == "error"
        assert one.origin.pointer == "/capabilities/stand_ins/NPM"
        assert f"grant the file alone, as `read: [{file}]`" in one.hint


@pytest.mark.parametrize(
    ("rule", "is_warned"),
    [("tcp:*:443", True), ("tcp:*", True), ("*:*", True), ("tcp:*:22", False), ("tcp:other.test:443", False)],
)
def test_tunnels_to_every_host_beside_inspect_are_warned_about(rule: str, is_warned: bool) -> None:
    manifest = policy(grants=[f"network:{rule}"])
    found = [one.found for one in placing_problems(manifest, "/work", "/home/me") if "beside" in one.found]
    assert found == ([f"`network:{rule}` beside `inspect`"] if is_warned else [])


def answer(manifest: Manifest, use: str, tool: str = COMMANDS) -> Decision:
    manifest = with_commands(manifest.expand("/work", "/home/me"))
    return foreseen(decide(Request(tool, (Use(use),)), manifest), manifest)


def test_a_rule_for_connections_opens_no_tunnel_where_requests_are_looked_into() -> None:
    denied = answer(policy(), "network:tcp:api.github.com:443")
    assert isinstance(denied, Deny)
    (ground,) = denied.rules
    assert ground.text.startswith("api.github.com is under `inspect`: rules about requests decide there")
    assert "`GET https://api.github.com/`" in ground.fix
    assert ground.origin is not None
    assert ground.origin.pointer == "/capabilities/inspect"
    for open_still in ("network:tcp:pypi.org:443", "network:https:get@api.github.com:443"):
        assert not isinstance(answer(policy(), open_still), Deny)
    assert not isinstance(answer(policy(inspect=[], stand_ins={}), "network:tcp:api.github.com:443"), Deny)


def test_a_connection_that_no_rule_allows_names_the_rule_that_an_upgrade_needs_and_the_inspection() -> None:
    denied = answer(policy(), "network:tcp:a.example.com:443")
    assert isinstance(denied, Deny)
    *lacking, inspected = denied.rules
    assert {ground.fix.partition(" under ")[0] for ground in lacking} == {"add `network:tcp:a.example.com:443`"}
    assert "is under `inspect`" in inspected.text
    assert not inspected.fix


def test_the_organisation_is_named_if_it_looks_into_a_connection() -> None:
    above = Organisation(origin=HERE, inspect=("pypi.org",), places={"inspect": Origin("org.yaml", 3, 1)})
    denied = answer(policy().under(above), "network:tcp:pypi.org:443")
    assert isinstance(denied, Deny)
    assert str(denied.rules[0].origin) == "org.yaml:3"


def test_a_request_of_a_command_is_a_request_where_it_is_looked_into() -> None:
    inspected, tunnel = Use("network:https:get@api.github.com"), Use("network:https:get@pypi.org")
    assert connection_of_command(inspected, policy()) == inspected
    assert connection_of_command(tunnel, policy()) == Use("network:tcp:pypi.org:443")
    other_port = Use("network:https:get@api.github.com:8443")
    assert connection_of_command(other_port, policy()) == Use("network:tcp:api.github.com:8443")


def test_a_command_never_reads_a_secret() -> None:
    shown = surface(policy()).commands
    assert shown is not None
    assert not [entry for entry in shown.entries if entry.kind == "secrets"]
    assert isinstance(decide(Request("t"), policy({"tools": TOOLS}, tools=["t"])), Allow)
