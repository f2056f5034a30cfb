"""The manifests that a person reviewed: each is one that a gate takes, and names only tools that it knows."""

from pathlib import Path

import pytest
import yaml

from licet.core.policy.keys import FLOW
from licet.policy_files.data import manifest_from_data

from .reviewed import FOLDER

FILES = sorted(FOLDER.glob("*.yaml"))


def test_there_is_one_for_each_domain() -> None:
    assert [file.stem for file in FILES] == ["banking", "slack", "travel", "workspace"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_is_a_manifest_whose_references_lead_to_labels(file: Path) -> None:
    data = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert data.keys() == {"flow", "tools"}
    results = data["flow"]["results"]
    tools = sorted({*results, *data["tools"]})
    capabilities = {"tools": {name: data["tools"].get(name, {}) for name in tools}, "native": tools}
    manifest = manifest_from_data({"agent": "reviewed", "flow": data["flow"], "capabilities": capabilities})
    assert FLOW.of(manifest).preset == "guarded"
    fields = {
        place for tool in data["tools"].values() for rule in tool["args"].values() for place in rule.get("of", ())
    }
    for place in fields:
        tool, _, field = place.partition(":")
        assert results[tool] == {"label": "ack", "creates": True} or results[tool][field] == "trusted"
