"""`Gate.load`: a gate from a manifest file and the tools that it names."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from licet import Backends, Gate, Result, load_manifest, tool
from licet.errors import ManifestError, Refused, RegistrationRefused

SOURCE = """
from licet import Context, tool

@tool(needs=["fs:read:${workdir}/data"], effect="read_only", sandbox="native")
async def read(ctx: Context, name: str) -> str:
    "Read a file."
    return await ctx.fs.read(f"data/{name}")
"""
AGENT = """
agent: a
tools:
  read: {from: "loaded_tools:read"}
capabilities:
  tools: [read]
  native: [read]
  fs_reach: {read: ["${workdir}/data"]}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    before = list(sys.meta_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_text("hello")
    (tmp_path / "agent.yaml").write_text(AGENT)
    (tmp_path / "loaded_tools.py").write_text(SOURCE)
    yield
    sys.meta_path[:] = before
    sys.modules.pop("loaded_tools", None)


def call(gate: Gate, which: str, **arguments: Any) -> Result:
    async def once() -> Result:
        async with gate.session("s") as session:
            return await session.call(which, arguments)

    return asyncio.run(once())


def test_the_tools_of_a_manifest_are_imported_and_run_on_this_machine() -> None:
    assert call(Gate.load("agent.yaml"), "read", name="a").unwrap() == "hello"


def test_other_backends_and_a_pin_can_be_given() -> None:
    digest = load_manifest("agent.yaml").digest
    gate = Gate.load("agent.yaml", Backends.memory(files={f"{Path.cwd()}/data/a": b"memory"}), pin=digest)
    assert call(gate, "read", name="a").unwrap() == "memory"


BROKEN = {
    "another declaration when it runs": (SOURCE + "\nread = read if True else None\n", ManifestError, "bound 2 times"),
    "no such function": ("", ManifestError, "no `read` in loaded_tools.py"),
    "it does not load": ("import no_such_module_here\n" + SOURCE, ManifestError, "it stops at"),
    "it needs more": (SOURCE.replace("/data", "/other"), RegistrationRefused, "needs fs:read"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_not_as_its_source_says_is_refused(tmp_path: Path, case: str) -> None:
    text, error, said = BROKEN[case]
    (tmp_path / "loaded_tools.py").write_text(text)
    with pytest.raises(error, match=said):
        Gate.load("agent.yaml")


@tool(needs=["fs:read:${workdir}/data/sub"], effect="read_only", sandbox="native", name="read")
async def narrower(name: str) -> str:
    """Declare something else than the source that the policy names."""
    return name


def test_a_tool_that_is_handed_to_a_gate_is_compared_with_its_source() -> None:
    manifest = load_manifest("agent.yaml")
    with pytest.raises(Refused, match="`read` has another `needs` than its source, which the policy names"):
        Gate(manifest, [narrower], Backends.memory())
    gate = Gate.load("agent.yaml")
    Gate(manifest, gate.tools, Backends.memory())
