"""Keys that are known by name: what is offered for each is policy that holds, and none of them signs."""

import re

import pytest

from licet import Manifest
from licet.cli.init_preset import AGENTS, coding_policy
from licet.core.policy.unplaceable import unplaceable
from licet.core.review.known_keys import KNOWN_KEYS, entry_text, inspect_text, known_stand_in
from licet.policy_files.load import load_own_manifest

VARIABLES = [variable for known in KNOWN_KEYS for variable in known.variables]


@pytest.mark.parametrize("variable", VARIABLES)
def test_what_is_offered_for_a_known_key_is_sound(variable: str) -> None:
    entry = known_stand_in(variable, "keys/one")
    assert entry is not None
    stated = {"secret": "keys/one", "hosts": list(entry.hosts), "headers": list(entry.headers)}
    capabilities = {"inspect": list(entry.hosts), "secrets": ["keys/one"], "stand_ins": {variable: stated}}
    assert Manifest.from_data({"agent": "a", "capabilities": capabilities}).values["stand_ins"] == (entry,)
    assert not unplaceable(variable)


def test_each_variable_is_in_one_row() -> None:
    assert len(VARIABLES) == len({*VARIABLES})
    assert known_stand_in("SOMETHING_ELSE", "k") is None


def test_the_preset_for_coding_agents_offers_keys_in_comments(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("project")
    text = coding_policy("coder", "", AGENTS, folder)
    written, offered = folder / "licet.yaml", folder / "offered.yaml"
    written.write_text(text, "utf-8")
    assert not {"inspect", "stand_ins"} & load_own_manifest(written).values.keys()
    keys = [variable for agent in AGENTS for variable in agent.keys]
    lines = re.sub(r"^  # ((?:inspect|secrets|stand_ins):.*|  [A-Z_]+: \{.*)$", r"  \1", text, flags=re.MULTILINE)
    lines = re.sub(r"^  env: .*$", "  env: [TERM]", lines, flags=re.MULTILINE)
    offered.write_text(lines, "utf-8")
    entries = load_own_manifest(offered).values["stand_ins"]
    assert isinstance(entries, tuple)
    assert {entry.name for entry in entries} == {*keys, "GITHUB_TOKEN", "NPM_TOKEN"}


def test_an_entry_is_written_on_one_line() -> None:
    entry = known_stand_in("COPILOT_GITHUB_TOKEN", "k")
    assert entry is not None
    assert entry_text(entry) == 'COPILOT_GITHUB_TOKEN: {secret: k, hosts: ["*.githubcopilot.com", api.github.com]}'
    assert inspect_text([entry, entry]) == 'inspect: ["*.githubcopilot.com", api.github.com]'
