"""What three starts of a server have in common, which names clash, and what a failed start is put down to."""

from typing import Any

import pytest
from msgspec.structs import replace

from licet.core.algebra.set import CapabilitySet
from licet.core.policy.lock import LockedServer, Resolved
from licet.core.policy.servers import ClientTerms, Server
from licet.mcp.listing import Definitions
from licet.mcp.server_definitions import NotTaken, Taken, agreed, likely_causes, server_wrote
from licet.mcp.shown_names import renamed, without_clashes
from licet.mcp.upstream import Opened

SERVER = Server(name="files", command=("x",), client=ClientTerms(roots=("/srv",)))
RESOLVED = Resolved("file", program="x", digest="sha256:" + "0" * 64)
READ: dict[str, Any] = {"name": "read", "description": "Reads.", "inputSchema": {"type": "object"}}
TAG = "\U000e0041"


def started(*tools: dict[str, Any], version: str = "2025-11-25", instructions: str = "", **more: Any) -> Taken:
    return Taken(Opened("2025", version, {}, {}, instructions), Definitions(tools=tools, **more))


def lock(*takes: Taken, before: LockedServer | None = None, accepted: tuple[str, ...] = ()) -> LockedServer:
    return agreed(SERVER, RESOLVED, takes, {"${workdir}": "/srv/w"}, before or LockedServer(), frozenset(accepted))


def refusal(*takes: Taken, **options: Any) -> str:
    with pytest.raises(NotTaken) as refused:
        lock(*takes, **options)
    return "\n".join(refused.value.lines)


def test_equal_starts_are_locked() -> None:
    found = lock(*[started(READ, {**READ, "name": "a", "description": "in /srv/w", "_meta": {"x": 1}})] * 3)
    assert found.tools == (READ, {**READ, "name": "a", "description": "in ${workdir}"})
    assert (found.command, found.resolved, found.version, found.announced) == (
        ("x",),
        RESOLVED,
        "2025-11-25",
        ("roots",),
    )
    assert (found.volatile, found.hidden, found.refused) == ({}, (), {})


def test_a_text_that_differs_is_volatile_and_the_first_is_kept() -> None:
    nested = {**READ, "inputSchema": {"type": "object", "properties": {"a": {"description": "1"}}}}
    other = {**nested, "inputSchema": {"type": "object", "properties": {"a": {"description": "2"}}}}
    found = lock(started(nested), started(other), started({**nested, "description": "Third."}))
    assert found.tools == (nested,)
    assert found.volatile == {"tools/read": ("description", "inputSchema/properties/a/description")}


def test_the_instructions_of_the_first_start_are_kept() -> None:
    found = lock(*(started(READ, instructions=text) for text in ("Look in /srv/w.", "second", "")))
    assert (found.instructions, found.volatile) == ("Look in ${workdir}.", {})


def test_hidden_characters_in_instructions_are_refused_unless_they_are_accepted() -> None:
    plain, hiding = started(READ, instructions="Be kind."), started(READ, instructions=f"Be kind.{TAG}")
    assert "--accept-hidden files.instructions" in refusal(plain, plain, hiding)
    found = lock(*[hiding] * 3, accepted=("files.instructions",))
    assert found.hidden == ("instructions",)
    assert lock(*[hiding] * 3, before=found) == found
    assert "U+E0041" in refusal(*[started(READ, instructions=f"Be mean.{TAG}")] * 3, before=found)


CLAIMS: dict[str, tuple[str | None, Resolved | None, str, str]] = {
    "a file": ("github@2.1", RESOLVED, "2.1", "2.1"),
    "an address": ("github", None, "2.1.0-beta+7", "2.1.0-beta+7"),
    "no connector": (None, RESOLVED, "2.1", ""),
    "a package": ("github", Resolved("npm", "x", "1.0.0"), "2.1", ""),
    "no version": ("github", RESOLVED, "", ""),
    "a text that is no version": ("github", RESOLVED, "2.1\n~ all is well", ""),
    "a very long version": ("github", RESOLVED, "1" * 65, ""),
}


@pytest.mark.parametrize(("connector", "resolved", "said", "locked"), CLAIMS.values(), ids=CLAIMS)
def test_the_version_that_a_server_claims_is_locked_where_connector_lists_need_it(
    connector: str | None, resolved: Resolved | None, said: str, locked: str
) -> None:
    take = Taken(Opened("2025", "2025-11-25", {"name": "x", "version": said}, {}, ""), Definitions(tools=(READ,)))
    server = replace(SERVER, connector=connector)
    assert agreed(server, resolved, [take] * 3, {}, LockedServer(), frozenset()).claimed_version == locked


def test_a_claim_that_differs_from_start_to_start_is_refused() -> None:
    takes = [Taken(Opened("2025", "2025-11-25", {"version": one}, {}, ""), Definitions(tools=(READ,))) for one in "121"]
    with pytest.raises(NotTaken) as refused:
        agreed(replace(SERVER, connector="github"), RESOLVED, takes, {}, LockedServer(), frozenset())
    assert "it claims another version of itself from start to start" in refused.value.lines[0]
    assert agreed(SERVER, RESOLVED, takes, {}, LockedServer(), frozenset()).claimed_version == ""


DIFFERENT: dict[str, tuple[Taken, str]] = {
    "a schema": (started({**READ, "inputSchema": {"type": "array"}}), "`read` has another inputSchema/type"),
    "an annotation": (started({**READ, "annotations": {"readOnlyHint": True}}), "`read` has another annotations"),
    "a title of an annotation": (started({**READ, "annotations": {"title": "x"}}), "`read` has another annotations"),
    "another tool": (started(READ, {**READ, "name": "evil"}), "`evil` is there"),
    "no tool": (started(), "`read` is not there"),
    "another name": (started({**READ, "name": "evil"}), "`evil` is there"),
    "a description that is new": (started({**READ, "title": "x"}), "`read` has another title"),
    "a prompt": (started(READ, prompts=({"name": "p"},)), "prompts: `p` is there"),
    "a version": (started(READ, version="2025-06-18"), "another protocol version"),
}


@pytest.mark.parametrize(("third", "expected"), DIFFERENT.values(), ids=DIFFERENT)
def test_other_definitions_at_the_third_start_are_refused(third: Taken, expected: str) -> None:
    told = refusal(started(READ), started(READ), third)
    assert expected in told
    assert "third start" in told or "version" in told


def test_the_order_of_the_server_is_kept_unless_it_changes() -> None:
    one, two = {**READ, "name": "b"}, {**READ, "name": "a"}
    assert lock(*[started(one, two)] * 3).tools == (one, two)
    assert lock(started(one, two), started(two, one), started(one, two)).tools == (two, one)


HIDING: dict[str, dict[str, Any]] = {
    "in a description": {**READ, "description": f"Reads.{TAG}"},
    "in a schema": {**READ, "inputSchema": {"properties": {"a": {"anyOf": [{"description": TAG}]}}}},
    "in the name of an argument": {**READ, "inputSchema": {"properties": {f"a{TAG}": {}}}},
    "in an annotation": {**READ, "annotations": {"title": f"\u202e{TAG}"}},
}


@pytest.mark.parametrize("tool", HIDING.values(), ids=HIDING)
def test_hidden_characters_are_refused_unless_they_are_accepted(tool: dict[str, Any]) -> None:
    told = refusal(*[started(tool)] * 3)
    assert "U+E0041" in told
    assert "--accept-hidden files.read" in told
    found = lock(*[started(tool)] * 3, accepted=("files.read",))
    assert found.hidden == ("tools/read",)
    assert lock(*[started(tool)] * 3, before=found).hidden == ("tools/read",)  # the same as was accepted
    changed = {**tool, "title": f"new{TAG}"}
    assert "U+E0041" in refusal(*[started(changed)] * 3, before=found)
    refusal(*[started(tool)] * 3, accepted=("files.other", "read", "other.read"))


def test_characters_that_are_hidden_at_one_start_only_are_found() -> None:
    assert "U+E0041" in refusal(started(READ), started(READ), started({**READ, "description": f"Reads.{TAG}"}))


def test_a_name_that_cannot_be_used_is_refused_and_the_others_work() -> None:
    names = ("read", "resources", "prompts", "a b", "é", "x" * 128)
    found = lock(*[started(*({**READ, "name": name} for name in names))] * 3)
    assert sorted(found.refused) == sorted(f"tools/{name}" for name in names if name != "read")
    assert len(found.tools) == len(names)


# Names ----------------------------------------------------------------------------------------------------------------


def offering(*tools: str, prompts: tuple[str, ...] = ()) -> LockedServer:
    return LockedServer(
        tools=tuple({"name": name} for name in tools), prompts=tuple({"name": name} for name in prompts)
    )


CLASHES: dict[str, tuple[dict[str, LockedServer], Any, dict[str, list[str]]]] = {
    "none": ({"a": offering("x"), "b": offering("x")}, "", {}),
    "within a server": ({"a": offering("x.y", "x_y", "z")}, "", {"a": ["tools/x.y", "tools/x_y"]}),
    "within a server among several": (
        {"a": offering("x/y", "x_y"), "b": offering("x_y")},
        "",
        {"a": ["tools/x/y", "tools/x_y"]},
    ),
    "between plain names": (
        {"a": offering("x", "z"), "b": offering("x")},
        "plain",
        {"a": ["tools/x"], "b": ["tools/x"]},
    ),
    "prompts": ({"a": offering("x", prompts=("p.q", "p_q", "x"))}, "", {"a": ["prompts/p.q", "prompts/p_q"]}),
}


@pytest.mark.parametrize(("servers", "how", "expected"), CLASHES.values(), ids=CLASHES)
def test_names_that_clash_are_all_refused(
    servers: dict[str, LockedServer], how: Any, expected: dict[str, list[str]]
) -> None:
    found = without_clashes(servers, how)
    assert {name: sorted(one.refused) for name, one in found.items() if one.refused} == expected
    for name, one in found.items():
        assert replace(one, refused={}) == servers[name]


def test_a_refused_name_clashes_with_nothing() -> None:
    servers = {"a": replace(offering("x.y", "x_y"), refused={"tools/x.y": "no"})}
    assert without_clashes(servers, "")["a"].refused == {"tools/x.y": "no"}


def test_a_second_server_renames_tools() -> None:
    one, two = {"a": offering("x")}, {"a": offering("x"), "b": offering("y")}
    assert list(renamed(one, two, "")) == ["! clients see a.x as `a__x`, no longer as `x`"]
    assert list(renamed(two, one, "")) == ["! clients see a.x as `x`, no longer as `a__x`"]
    assert not list(renamed(one, two, "plain"))
    assert not list(renamed(one, two, "prefixed"))


# Failed starts --------------------------------------------------------------------------------------------------------

# What a hostile server may write: each was once answered with advice to grant it.
WRITTEN = (
    "PermissionError: [Errno 13] Permission denied: '/etc/shadow'",
    "ENOENT: no such file or directory, open '/root/.ssh'",
    "Error: getaddrinfo EAI_AGAIN evil.example.com",
    "AWS_SECRET_ACCESS_KEY environment variable is required",
    "ModuleNotFoundError: No module named 'mcp.server.fastmcp'",
)


def test_nothing_that_a_server_writes_becomes_advice() -> None:
    said = list(server_wrote(WRITTEN))
    assert said == [f"it wrote: {line}" for line in WRITTEN]
    assert list(likely_causes(SERVER, CapabilitySet(), [])) == [NO_GUESS]


def test_what_a_server_writes_is_cut_and_has_no_hidden_characters() -> None:
    [line] = server_wrote(["\x1b[2J\u202e" + "x" * 1000])
    assert line.startswith("it wrote: \\u001b[2J\\u202ex")
    assert len(line) < 330
    assert line.endswith("x…")


def test_what_the_walls_refused_is_named() -> None:
    [told] = likely_causes(SERVER, CapabilitySet(), [], ["network:https:get@api.example.com:443"])
    assert told == (
        "its walls refused `network:https:get@api.example.com:443`: if it needs that, add it to `servers.files.grants`"
    )


@pytest.mark.parametrize(("pin", "expected"), [("mcp==2.0.1", 1), ("mcp==1.9.0", 0), ("mcp-server-git==2.0", 0)])
def test_a_newer_sdk_is_named_if_the_package_has_one(pin: str, expected: int) -> None:
    resolved = Resolved("pypi", "x", "1", integrity={"any": {pin: "sha256:0"}})
    told = "\n".join(likely_causes(SERVER, CapabilitySet(), [], (), resolved))
    assert told.count("`uvx --with 'mcp<2' PACKAGE`") == expected


MISSING = "its command names /etc/new.db, which does not exist: make it first"
NO_GUESS = "if a wall stops it, `servers.files.grants` has what its process may touch"
ARGUMENTS = [
    # what the command has, what is granted, what is said
    (["--db=/etc/new.db", "-v"], [], f"{MISSING}, and add `fs:read:/etc` to `servers.files.grants`"),
    (["/etc/new.db"], ["fs:read:/etc"], MISSING),
    (["/etc/hosts"], [], "its command names /etc/hosts: add `fs:read:/etc/hosts` to `servers.files.grants`"),
    (["/etc/hosts"], ["fs:read:/etc"], NO_GUESS),
    (["/none/new.db"], [], NO_GUESS),
]


@pytest.mark.parametrize(("words", "granted", "expected"), ARGUMENTS)
def test_a_path_of_the_command_that_the_server_cannot_see_is_named(
    words: list[str], granted: list[str], expected: str
) -> None:
    (told,) = likely_causes(SERVER, CapabilitySet(granted), words)
    assert told.removeprefix("probably a wall: ") == expected


def test_nothing_is_guessed_about_a_server_without_walls() -> None:
    assert not list(likely_causes(replace(SERVER, sandbox="native"), CapabilitySet(), ["/etc/hosts"]))
