"""The types of the official SDK agree about the definitions that clients reject: LICET_MCP2_PYTHON has `mcp` 2.x."""

import json
import os
import subprocess

import pytest

from definitions import BAD, GOOD, whole

# Values of a schema are no business of this SDK; the one for TypeScript looks at them.
LOOSE = ("inputSchema", "uri", "uriTemplate")
CHECK = """
import json, sys
import mcp_types

kinds = {"tools": "Tool", "resources": "Resource", "templates": "ResourceTemplate", "prompts": "Prompt"}

def fits(kind, definition):
    try:
        getattr(mcp_types, kinds[kind]).model_validate(definition)
    except ValueError:
        return False
    return True

print(json.dumps([fits(*one) for one in json.load(sys.stdin)]))
"""


def accepted(cases: list[tuple[str, dict[str, object]]]) -> list[bool]:
    python = os.environ.get("LICET_MCP2_PYTHON")
    if not python:
        pytest.skip("LICET_MCP2_PYTHON is not set")
    given = json.dumps([(kind, whole(kind, changes)) for kind, changes in cases])
    said = subprocess.run([python, "-c", CHECK], input=given, capture_output=True, text=True, check=True)
    found: list[bool] = json.loads(said.stdout)
    return found


def test_what_is_left_out_is_rejected_by_the_sdk() -> None:
    strict = [case for case in BAD if not case[1].keys() & set(LOOSE)]
    assert [case for case, fits in zip(strict, accepted(strict), strict=True) if fits] == []


def test_what_is_kept_is_accepted_by_the_sdk() -> None:
    assert all(accepted(GOOD))
