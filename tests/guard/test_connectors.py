"""The version of a connector is that of the installed distribution whose files include the module of the tool."""

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from licet import Backends, Gate, Manifest, RegistrationRefused, Tool, load_manifest, tool

from .gates import call

MODULE = "licet_test_hub"
SOURCE = """
from licet import tool

@tool(needs=[], effect="read_only", sandbox="native", connector="{connector}")
def issues() -> str:
    "List issues."
    return "none"
"""


class World:
    """A directory of installed distributions, and a policy."""

    def __init__(self, root: Path) -> None:
        self.site, self.root = root / "site", root
        self.site.mkdir()

    def install(self, name: str, version: str, *files: str) -> None:
        """Install a distribution that lists these files."""
        info = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in (*files, f"{info.name}/METADATA")))

    def tool(self, connector: str = "github", *, name: str = f"{MODULE}/tools.py") -> Tool:
        """A tool in a module of that directory."""
        (self.site / MODULE).mkdir(exist_ok=True)
        (self.site / name).write_text(SOURCE.format(connector=connector))
        found: Tool = importlib.import_module(name.removesuffix(".py").replace("/", ".")).issues
        return found

    def gate(
        self, tool: Tool, allowed: str = ">=2.0", *, capabilities: Mapping[str, Any] | None = None, **definition: Any
    ) -> Gate:
        """A gate with `on_misfit="narrow"`, so that calls are refused and not the gate."""
        defined = {"definitions": {"github": definition}} if definition else {}
        own = {"tools": ["issues"], "native": ["issues"], "connectors": ["github"], **(capabilities or {})}
        content = {
            "agent": "a",
            "connectors": {"tenant_allowlist": [{"connector": "github", "version": allowed}], **defined},
            "capabilities": own,
        }
        (self.root / "agent.yaml").write_text(json.dumps(content))
        manifest = load_manifest(self.root / "agent.yaml")
        return Gate(manifest, [tool], Backends.memory(), workdir=self.root, on_misfit="narrow")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path)
    monkeypatch.syspath_prepend(str(made.site))
    yield made
    for name in [name for name in sys.modules if name.partition(".")[0] == MODULE]:
        del sys.modules[name]


def test_the_version_of_the_distribution_that_lists_the_module_counts(world: World) -> None:
    world.install("acme-hub", "2.1.4", f"{MODULE}/tools.py")
    world.install(MODULE.replace("_", "-"), "9.9", f"{MODULE}/other.py")  # of the module's name, and not its own
    result = call(world.gate(world.tool("github@2.1")), "issues")
    assert result.ok, result.explain()


REFUSED = {
    "against the tool": (
        "github@2.1",
        {},
        ">=2.0",
        "github@3.0 (acme-hub 3.0) is installed, but the tool declares 2.1",
    ),
    "against the list": ("github", {}, ">=2.0,<3", "github@3.0 (acme-hub 3.0) is allowed only in versions <3,>=2.0"),
    "against the definition": (
        "github",
        {"version": "2.1"},
        ">=2.0",
        "github@3.0 (acme-hub 3.0) is defined as ==2.1.*",
    ),
    "a definition is no statement of what runs": (
        "github@2.1",
        {"version": "2.1"},
        "==2.1.*",
        "github@3.0 (acme-hub 3.0) is installed, but the tool declares 2.1",
    ),
}


@pytest.mark.parametrize(("connector", "definition", "allowed", "told"), REFUSED.values(), ids=REFUSED)
def test_a_call_is_refused_if_another_version_runs(
    connector: str, definition: dict[str, Any], allowed: str, told: str, world: World
) -> None:
    world.install("Acme_Hub", "3.0", f"{MODULE}/tools.py")
    result = call(world.gate(world.tool(connector), allowed, **definition), "issues")
    assert result.reason == "CONNECTOR_NOT_ALLOWED"
    assert told in result.explain()


def test_a_gate_refuses_such_a_tool(world: World) -> None:
    world.install("acme-hub", "1.0", f"{MODULE}/tools.py")
    gate = world.gate(world.tool("github@2.1"))
    with pytest.raises(RegistrationRefused, match=r"github@1\.0"):
        Gate(gate.manifest, gate.tools, Backends.memory(), workdir=world.root)


def test_a_tool_of_the_project_has_the_version_that_it_declares(world: World) -> None:
    world.install("acme-hub", "1.0", f"{MODULE}/other.py")
    assert call(world.gate(world.tool("github@2.1")), "issues").ok


def test_the_distribution_that_a_definition_names_counts(world: World) -> None:
    world.install("acme-client", "2.4", "acme_client.py")
    world.install("acme-hub", "1.0", f"{MODULE}/tools.py")
    tool = world.tool("github")
    assert call(world.gate(tool, distribution="Acme.Client"), "issues").ok
    result = call(world.gate(tool, ">=3", distribution="acme-client"), "issues")
    assert "github@2.4 (acme-client 2.4) is allowed only in versions >=3" in result.explain()
    result = call(world.gate(tool, distribution="acme-nothing"), "issues")
    assert result.reason == "CONNECTOR_NOT_ALLOWED"
    assert "one installed version of acme-nothing, and there is none, or several" in result.explain()


def test_a_module_that_two_distributions_list_has_no_version(world: World) -> None:
    world.install("acme-hub", "2.1", f"{MODULE}/tools.py")
    world.install("other-hub", "2.2", f"{MODULE}/tools.py")
    result = call(world.gate(world.tool("github")), "issues")
    assert result.reason == "CONNECTOR_NOT_ALLOWED"
    assert "one installed version of acme-hub and other-hub, and there is none, or several" in result.explain()


def plant(where: Path, name: str, version: str, *files: str) -> None:
    """Write the metadata of a distribution that is not installed."""
    info = where / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


@pytest.mark.parametrize("definition", [{}, {"distribution": "acme"}], ids=["by its files", "by its name"])
@pytest.mark.parametrize("where", ["the working directory", "the current directory", "a grant"])
def test_planted_metadata_does_not_count(
    where: str, definition: dict[str, Any], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.install("acme", "1.0", f"{MODULE}/tools.py")
    planted = {"the working directory": world.root, "the current directory": world.root / "here"}
    place = planted.get(where, world.root / "granted" / "below")
    plant(place, "acme", "2.1", f"site/{MODULE}/tools.py", f"../site/{MODULE}/tools.py")
    monkeypatch.syspath_prepend(str(place))
    if where == "the current directory":
        monkeypatch.chdir(place)
    gate = world.gate(
        world.tool("github"),
        capabilities={"fs_reach": {"write": ["${workdir}/granted"]}},
        **definition,
    )
    result = call(gate, "issues")
    assert result.reason == "CONNECTOR_NOT_ALLOWED"
    assert "github@1.0 (acme 1.0) is allowed only in versions >=2.0" in result.explain()


def test_a_distribution_that_is_installed_twice_has_no_version(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.install("acme", "1.0", f"{MODULE}/tools.py")
    plant(world.root / "second", "acme", "2.1")
    monkeypatch.syspath_prepend(str(world.root / "second"))
    result = call(world.gate(world.tool("github"), distribution="acme"), "issues")
    assert result.reason == "CONNECTOR_NOT_ALLOWED"
    assert "one installed version of acme, and there is none, or several" in result.explain()


def test_a_tool_cannot_claim_another_module(world: World) -> None:
    world.install("acme", "1.0", f"{MODULE}/tools.py")
    world.install("other", "2.1", f"{MODULE}/other.py")
    world.tool("github@2.1", name=f"{MODULE}/other.py")
    sly = world.tool("github@2.1")

    def wrapped() -> None: ...

    wrapped.__module__ = "nowhere"
    wrapped.__code__ = wrapped.__code__.replace(co_filename="<nowhere>")
    sly.fn.__wrapped__ = wrapped  # type: ignore[attr-defined]
    assert "github@1.0 (acme 1.0) is installed" in call(world.gate(sly), "issues").explain()
    sly.fn.__module__ = f"{MODULE}.other"
    assert (
        "one installed version of acme and other, and there is none, or several"
        in call(world.gate(sly), "issues").explain()
    )


@pytest.mark.parametrize("version", ["two", ""])
def test_a_distribution_without_a_version_fits_nothing(version: str, world: World) -> None:
    world.install("acme-hub", version, f"{MODULE}/tools.py")
    assert call(world.gate(world.tool("github")), "issues").reason == "CONNECTOR_NOT_ALLOWED"


def test_the_version_of_a_connector_is_checked_for_a_delegate_too(world: World) -> None:
    world.install("acme-hub", "3.0", f"{MODULE}/tools.py")
    gate = world.gate(world.tool("github@2.1")).delegated("helper", ["connector:use:*"])
    registered = gate.policy.tools["issues"]
    assert registered.reach is not None
    assert [ground.reason for ground in registered.reach.grounds] == ["CONNECTOR_NOT_ALLOWED"]


# What a tool speaks through cannot be narrowed ------------------------------------------------------------------------

ALLOWED = {"tenant_allowlist": [{"connector": "github", "version": ">=2.0"}, "slack"]}
STATED, NEEDED = {"connector": "github@1.0"}, {"needs": ["connector:use:github"]}
# What the code states, what the file does (None: it does not declare the tool), the lists, and more capabilities.
NARROWED: dict[str, tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any], dict[str, Any]]] = {
    "no list has it, and the file leaves it out": (STATED, {}, {"tenant_allowlist": []}, {}),
    "no list has it, and the file leaves the need out": (NEEDED, {}, {"tenant_allowlist": []}, {}),
    "its version is not allowed, and the file states another": (STATED, {"connector": "github@2.1"}, ALLOWED, {}),
    "it is not allowed, and the file states another": (STATED, {"connector": "slack"}, ALLOWED, {}),
    "the one in the file is not allowed": ({"connector": "slack"}, {"connector": "github@1.0"}, ALLOWED, {}),
    "it is denied": ({"connector": "github@2.1"}, {"connector": "github"}, ALLOWED, {"deny": ["connector:use:github"]}),
    "it is denied, and in no file": ({"connector": "github@2.1"}, None, ALLOWED, {"deny": ["connector:use:github"]}),
    "all are denied": ({"connector": "github@2.1"}, None, ALLOWED, {"deny": ["connector:use:*"]}),
}  # fmt: skip


@pytest.mark.parametrize("mode", ["narrow", "deny"])
@pytest.mark.parametrize(("code", "said", "lists", "capabilities"), NARROWED.values(), ids=NARROWED)
def test_a_connector_that_is_not_allowed_never_runs(
    code: dict[str, Any], said: dict[str, Any] | None, lists: dict[str, Any], capabilities: dict[str, Any], mode: Any
) -> None:
    @tool(effect="read_only", sandbox="native", **{"needs": [], **code})
    def issues() -> str:
        """List issues."""
        return "none"

    own = {"tools": ["issues"], "native": ["issues"], "connectors": ["github", "slack"], **capabilities}
    declared = {} if said is None else {"issues": {"needs": [], "effect": "read_only", "sandbox": "native", **said}}
    manifest = Manifest.from_data({"agent": "a", "capabilities": own}, {"connectors": lists, "tools": declared})
    result = call(Gate(manifest, [issues], Backends.memory(), on_misfit=mode), "issues")
    assert result.reason == "CONNECTOR_NOT_ALLOWED", result.explain()


def test_a_tool_at_an_allowed_connector_is_narrowed_to_its_declaration() -> None:
    @tool(needs=["env:read:A", "env:read:B"], effect="read_only", sandbox="native", connector="github")
    def issues() -> str:
        """List issues."""
        return "none"

    own = {"tools": ["issues"], "native": ["issues"], "connectors": ["github"], "env": ["A", "B"]}
    said = {"needs": ["env:read:A"], "effect": "read_only", "sandbox": "native", "connector": "github@2.1"}
    manifest = Manifest.from_data(
        {"agent": "a", "capabilities": own}, {"connectors": ALLOWED, "tools": {"issues": said}}
    )
    gate = Gate(manifest, [issues], Backends.memory(), on_misfit="narrow")
    assert call(gate, "issues").ok
    reach = gate.policy.tools["issues"].reach
    assert reach is not None
    assert [str(rule) for rule in reach.grant.allow] == ["connector:use:github", "env:read:A"]
