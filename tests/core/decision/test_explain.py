"""An explanation names every obstacle once, with a complete fix in the notation of the file."""

from pathlib import Path

import pytest

from licet.assemble import Places, review
from licet.core.algebra.rules import Use
from licet.core.decision.decide import decide
from licet.core.decision.decision import explain
from licet.core.decision.fixes import settle
from licet.core.decision.reach import reach_of
from licet.core.decision.request import Request

HOME = "/home/somebody"
PLACES = Places("/srv", HOME)

TOOLS = """
tools:
  save: {needs: ["fs:write:${workdir}/out", "fs:delete:${workdir}/out"], effect: write_limited, sandbox: native}
  wipe: {needs: ["fs:*:*"], effect: full, sandbox: native}
  pull: {needs: ["network:*:*"], effect: read_only, sandbox: restricted}
  bare: {needs: ["network:*:*", "fs:read:~/notes"]}
"""
SAVE = """agent: a
capabilities:
  tools: [save]
  max_side_effect_class: write_limited
  native: [save]
  fs_reach: {write: ["${workdir}/out"]}
"""
WALLED = SAVE.replace("[save]", "[wipe]").replace("native: [wipe]", "native: []").replace("write_limited", "full")
NOBODY = """agent: a
capabilities:
  tools: []
"""
HOSTS = """id: p
tools: [pull]
destinations: {allow: [a.example], deny: [b.example]}
"""


def explanation_of(
    place: Path, manifest: str, tool: str, use: str, personality: str = "", tools: str = TOOLS
) -> list[str]:
    """The lines `because` and `to allow it` of an explanation."""
    (place / "m.yaml").write_text(manifest + tools)
    (place / "p.yaml").write_text(personality)
    policy = review("m.yaml", personality="p.yaml" if personality else None, places=PLACES)
    assert policy.manifest is not None, policy.problems
    decision = decide(Request(tool, (Use(use),) if use else ()), policy.manifest)
    lines = explain(decision, reach_of(policy.manifest, tool)).splitlines()
    return [line[2:] for line in lines if line.startswith(("  because", "  to allow it"))]


@pytest.mark.parametrize(
    ("manifest", "tool", "use", "lines"),
    [
        pytest.param(
            SAVE,
            "save",
            "fs:delete:/srv/out/x",
            [
                "because       fs delete is not permitted to class write_limited (m.yaml:9)",
                (
                    "to allow it   set `effect: full` on the tool and `max_side_effect_class: full` (m.yaml:4);"
                    ' set `sandbox="isolated"` on the tool; add `budget: {max_calls_per_session: 100}` under'
                    " `capabilities` in m.yaml"
                ),
            ],
            id="a class that needs a wall and a budget comes with both",
        ),
        pytest.param(
            SAVE + "  budget: {max_cost_usd: 1}\n",
            "save",
            "fs:delete:/srv/out/x",
            [
                "because       fs delete is not permitted to class write_limited (m.yaml:10)",
                (
                    "to allow it   set `effect: full` on the tool and `max_side_effect_class: full` (m.yaml:4);"
                    ' set `sandbox="isolated"` on the tool'
                ),
            ],
            id="a budget that is there is not asked for again",
        ),
        pytest.param(
            WALLED,
            "wipe",
            "",
            [
                "because       `wipe` is not named in `native` (m.yaml:2)",
                "because       class full needs the level restricted or isolated (m.yaml:10)",
                "because       class full needs a budget (m.yaml:1)",
                'to allow it   set `sandbox="isolated"` on the tool',
                "to allow it   add `budget: {max_calls_per_session: 100}` under `capabilities` in m.yaml",
            ],
            id="native is not advised to a class that may not be native",
        ),
        pytest.param(
            WALLED.replace("tools: [wipe]", "tools: {wipe: {sandbox: restricted}}") + "  budget: {max_cost_usd: 1}\n",
            "wipe",
            "",
            [
                "because       `wipe` runs at native; at most restricted is allowed (m.yaml:3)",
                "because       `wipe` is not named in `native` (m.yaml:2)",
                "because       class full needs the level restricted or isolated (m.yaml:11)",
                'to allow it   set `sandbox="restricted"` on the tool',
            ],
            id="the wall is one that the ceiling allows",
        ),
        pytest.param(
            NOBODY,
            "pull",
            "network:https:get@a.example",
            [
                "because       `pull` is in no bundle assigned to the agent `a` (m.yaml:2)",
                "because       the manifest does not allow it (m.yaml:2)",
                "to allow it   add `pull` under `capabilities.tools` in m.yaml",
                "to allow it   add `network:https:get@a.example:443` under `capabilities.grants` in m.yaml",
            ],
            id="a tool that is not admitted hears of its use too",
        ),
        pytest.param(
            NOBODY,
            "bare",
            "network:https:post@a.example",
            [
                "because       `bare` is in no bundle assigned to the agent `a` (m.yaml:2)",
                "because       no class is stated for `bare` (m.yaml:9)",
                "because       no level is stated for `bare` (m.yaml:9)",
                "because       the manifest does not allow it (m.yaml:2)",
                "to allow it   add `bare` under `capabilities.tools` in m.yaml",
                (
                    "to allow it   add `effect: read_only` to `bare` under the top-level `tools` in m.yaml,"
                    " or `bare: {side_effect_class: read_only}` under `capabilities.tools`"
                ),
                (
                    "to allow it   add `sandbox: restricted` to `bare` under the top-level `tools` in m.yaml,"
                    " or `bare: {sandbox: restricted}` under `capabilities.tools`"
                ),
                "to allow it   add `network:https:post@a.example:443` under `capabilities.grants` in m.yaml",
            ],
            id="a tool that is not admitted hears of its class and level too",
        ),
        pytest.param(
            NOBODY,
            "wipe",
            "",
            [
                "because       `wipe` is in no bundle assigned to the agent `a` (m.yaml:2)",
                "because       `wipe` is full; at most read_only is allowed, the default (m.yaml:2)",
                "because       `wipe` is not named in `native` (m.yaml:2)",
                "because       class full needs the level restricted or isolated (m.yaml:7)",
                "because       class full needs a budget (m.yaml:1)",
                "to allow it   add `wipe` under `capabilities.tools` in m.yaml",
                "to allow it   set `effect: read_only` on the tool, or set `max_side_effect_class: full` (m.yaml:2)",
                'to allow it   set `sandbox="isolated"` on the tool',
                "to allow it   add `budget: {max_calls_per_session: 100}` under `capabilities` in m.yaml",
            ],
            id="a tool that is not admitted hears of what it could never do",
        ),
        pytest.param(
            NOBODY,
            "gone",
            "network:https:get@a.example",
            [
                "because       `gone` is not known here (m.yaml:1)",
                (
                    "to allow it   declare it under the top-level `tools` in m.yaml, and add it to a bundle or under"
                    " `capabilities.tools`"
                ),
            ],
            id="of a tool that nobody declares nothing more is known",
        ),
    ],
)
def test_every_obstacle_is_named_with_a_complete_fix(
    manifest: str, tool: str, use: str, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert explanation_of(tmp_path, manifest, tool, use) == lines


WIPE = 'tools:\n  wipe: {needs: ["fs:*:*"], effect: full, sandbox: isolated}\n'
READS = "agent: a\ncapabilities:\n  tools: [wipe]\n  max_side_effect_class: full\n  budget: {max_cost_usd: 1}\n"


@pytest.mark.parametrize(
    ("reach", "use", "item"),
    [
        ('["${workdir}/a"]', "fs:read:/srv/b", "`${workdir}/b` under `capabilities.fs_reach.read`"),
        ('["${workdir}/a"]', "fs:read:/srv", "`${workdir}` under `capabilities.fs_reach.read`"),
        ('["${workdir}/a"]', "fs:write:/srv/b", "`fs:write:${workdir}/b` under `capabilities.grants`"),
        ('["${workdir}/a"]', "fs:read:/srvb", "`/srvb` under `capabilities.fs_reach.read`"),
        ('["~/a"]', f"fs:read:{HOME}/b", "`~/b` under `capabilities.fs_reach.read`"),
        # No file writes paths from the working directory, so the fix does not start to.
        ('["/srv/a"]', "fs:read:/srv/b", "`/srv/b` under `capabilities.fs_reach.read`"),
    ],
)
def test_fixes_write_paths_as_the_files_do(
    reach: str, use: str, item: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = explanation_of(tmp_path, f"{READS}  fs_reach: {{read: {reach}}}\n", "wipe", use, tools=WIPE)
    assert lines[-1] == f"to allow it   add {item} in m.yaml"


@pytest.mark.parametrize(("use", "fix"), [
    ("network:https:get@c.example", ["add `network:https:get@c.example:443` under `grants` in p.yaml"]),
    ("network:https:get@b.example",
        ["remove `b.example` from `destinations.deny` in p.yaml",
        "add `network:https:get@b.example:443` under `grants` in p.yaml"]),
])  # fmt: skip
def test_fixes_for_a_personality_use_its_keys(
    use: str, fix: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    manifest = 'agent: a\ncapabilities: {tools: [pull], destinations: {allow: ["*"]}}\n'
    lines = explanation_of(tmp_path, manifest, "pull", use, HOSTS)
    assert [line for line in lines if line.startswith("to allow")] == [f"to allow it   {one}" for one in fix]


def test_a_personality_is_told_the_key_of_its_own_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    manifest = 'agent: a\ncapabilities: {tools: [pull], destinations: {allow: ["*"]}}\n'
    personality = "id: p\ntools: [pull]\nsafety: {network: {allow: [a.example]}}\n"
    lines = explanation_of(tmp_path, manifest, "pull", "network:https:get@c.example", personality)
    note = "this key cannot say less than any connection to that port"
    assert lines[-1] == f"to allow it   add `c.example:443` under `safety.network.allow` in p.yaml ({note})"


def test_the_fix_for_a_personality_alone_names_the_key_of_its_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "licet.yaml").write_text(TOOLS)
    (tmp_path / "p.yaml").write_text("id: p\ntools: [wipe]\nmax_side_effect_class: full\nnative: [wipe]\n")
    policy = review("p.yaml", places=PLACES)
    assert policy.manifest is not None, policy.problems
    rules = decide(Request("wipe"), policy.manifest).rules
    assert rules[-1].fix == "add `budget: {max_calls_per_session: 100}` in p.yaml"


ASKING = """agent: a
capabilities: {tools: %s, max_side_effect_class: write_limited, fs_reach: {write: [/out]}%s}
tools: {put: {needs: ["fs:write:/out"], effect: write_limited, sandbox: restricted}}
"""


@pytest.mark.parametrize(("tools", "approvals", "personality", "places"), [
    ("[put]", "", "", "`capabilities.approvals.write: manifest` in m.yaml"),
    ("[put]", ", approvals: {write: call}", "", "`capabilities.approvals.write: manifest` in m.yaml"),
    ("{put: {approval: call}}", ", approvals: {write: manifest}", "",
        "`capabilities.tools.put.approval: manifest` in m.yaml"),
    ("[put]", ", approvals: {write: manifest}", "tools: [put]", "`approvals.write: manifest` in p.yaml"),
    ("[put]", "", "tools: {put: {approval: session}}",
        "`capabilities.approvals.write: manifest` in m.yaml and `tools.put.approval: manifest` in p.yaml"),
])  # fmt: skip
def test_the_fix_for_a_missing_approval_names_every_key_that_requires_it(
    tools: str, approvals: str, personality: str, places: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.yaml").write_text(ASKING % (tools, approvals))
    (tmp_path / "p.yaml").write_text(
        f"id: p\nmax_side_effect_class: full\nfs_reach: {{write: [/out]}}\n{personality}\n"
    )
    policy = review("m.yaml", personality="p.yaml" if personality else None, places=PLACES)
    assert policy.manifest is not None, policy.problems
    assert decide(Request("put"), policy.manifest).verdict == "ask"
    reach = reach_of(policy.manifest, "put")
    assert reach is not None
    pin = "pin the policy with `Gate(pin=…)`" if personality else "accept the policy with `licet trust m.yaml`"
    assert settle(policy.manifest, reach.admissions) == f"approve it, or set {places}, and {pin}"
