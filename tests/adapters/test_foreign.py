"""`governed`: functions as tools at `native`. Tools of frameworks are tested with these, below tests/peers."""

import subprocess
import sys
from typing import Any

import pytest

import licet.adapters
from gates import DONE, gate_of, policy
from licet import RegistrationRefused, Tool
from licet.adapters import governed
from licet.adapters.foreign import Foreign, ForeignTool, _function, _own_copy
from licet.adapters.framework_calls import GateTools
from licet.core.policy.tool import spec_of


def send(to: str, text: str = "hello") -> str:
    """Send a message."""
    DONE.append(f"send {to}")
    return f"sent {text} to {to}"


def test_a_function_becomes_a_native_tool_with_its_declaration() -> None:
    tool = governed(send, needs=["network:https:post@mail.example.com"], effect="write_limited")
    assert (tool.name, tool.sandbox, tool.effect) == ("send", "native", "write_limited")
    assert tool.needs.has("network:https:post@mail.example.com")
    assert tool.schema["required"] == ["to"]


def test_it_runs_behind_the_gate() -> None:
    tool = governed(send, needs=[], effect="read_only", name="mail", description="Mail.")
    tools = GateTools(gate_of([tool]), "s")
    assert [(one.name, one.description) for one in tools.offered()] == [("mail", "Mail.")]
    assert tools.call_blocking("mail", {"to": "maria"}).text == "sent hello to maria"


def test_it_must_be_named_as_native_by_the_manifest() -> None:
    tool = governed(send, needs=[], effect="read_only")
    with pytest.raises(RegistrationRefused, match="native"):
        gate_of([tool], native=[])


def test_needs_that_the_manifest_does_not_allow_are_a_misfit() -> None:
    tool = governed(send, needs=["network:https:post@mail.example.com"], effect="write_limited")
    with pytest.raises(RegistrationRefused, match=r"mail\.example\.com"):
        gate_of([tool])
    assert policy([tool]) is not None


@pytest.mark.parametrize("given", [lambda: 1, print, 3, str, governed(send, needs=[], effect="read_only")])
def test_what_is_no_function_and_no_tool_of_a_framework_is_refused(given: Any) -> None:
    with pytest.raises(TypeError):
        governed(given, needs=[], effect="read_only")


# A tool with a JSON Schema, as frameworks have them -------------------------------------------------------------------


def foreign(schema: dict[str, Any]) -> Tool:
    async def run(arguments: dict[str, Any]) -> Any:
        DONE.append(f"ran {arguments}")
        return dict(sorted(arguments.items()))

    made = Foreign("find", "Find.", schema, run)
    own = _own_copy(made)
    spec = spec_of(name="find", needs=[], effect="read_only", sandbox="native", schema=own)
    return ForeignTool(_function(made, own), spec)


SCHEMA = {
    "properties": {
        "query": {"type": "string", "maxLength": 5},
        "most": {"type": "integer", "default": 3},
        "where": {"$ref": "#/$defs/Place"},
    },
    "required": ["query"],
    "$defs": {"Place": {"type": "object", "properties": {"city": {"enum": ["oslo"]}}, "required": ["city"]}},
}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"query": "rain"}, '{"most":3,"query":"rain"}'),
        ({"query": "rain", "where": {"city": "oslo"}}, '{"most":3,"query":"rain","where":{"city":"oslo"}}'),
        ({"query": 1}, "INPUT_INVALID: `query` does not fit `type` of its schema"),
        ({"query": "raining"}, "INPUT_INVALID: `query` does not fit `maxLength` of its schema"),
        ({"query": "rain", "most": None}, "INPUT_INVALID: `most` does not fit `type` of its schema"),
        ({"query": "rain", "where": {"city": "rome"}}, "INPUT_INVALID: `where.city` does not fit `enum` of its schema"),
        ({}, "INPUT_INVALID: `query` is required"),
        ({"query": "rain", "x": 1}, "INPUT_INVALID: `x` is not an argument of this tool"),
        ("[]", "INPUT_INVALID: expected arguments by name, found list"),
    ],
)
def test_arguments_are_checked_by_the_schema(given: Any, text: str) -> None:
    assert GateTools(gate_of([foreign(SCHEMA)]), "s").call_blocking("find", given).text == text
    assert bool(DONE) is not text.startswith("INPUT_INVALID")


@pytest.mark.parametrize(
    ("rule", "given", "reason"),
    [
        ({"query": {"enum": ["rain"]}}, {"query": "rain"}, "ALLOWED"),
        ({"query": {"enum": ["rain"]}}, {"query": "keys"}, "ARGUMENT_NOT_ALLOWED"),
        ({"most": {"maximum": 3}}, {"query": "rain"}, "ALLOWED"),
        ({"most": {"maximum": 3}}, {"query": "rain", "most": 4}, "ARGUMENT_NOT_ALLOWED"),
        ({"most": {"maximum": 2}}, {"query": "rain"}, "ARGUMENT_NOT_ALLOWED"),
        ({"where": {"required": ["city"]}}, {"query": "rain"}, "ARGUMENT_NOT_ALLOWED"),
    ],
)
def test_rules_of_the_manifest_hold_for_its_arguments(rule: dict[str, Any], given: Any, reason: str) -> None:
    tools = GateTools(gate_of([foreign(SCHEMA)], tools={"find": {"args": rule}}), "s")
    done = tools.call_blocking("find", given)
    assert done.result is not None
    assert done.result.reason == reason


def test_a_schema_that_lies_elsewhere_is_refused_and_never_fetched() -> None:
    with pytest.raises(Exception, match="only what is in the schema itself is used"):
        gate_of([foreign({"properties": {"a": {"$ref": "http://127.0.0.1:9/schema"}}})])


@pytest.mark.parametrize(
    "schema", [{"properties": {"a-b": {}}}, {"properties": {"class": {}}}, {"type": "string"}, {"properties": {"": {}}}]
)
def test_a_schema_that_no_call_by_name_fits_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="find"):
        foreign(schema)


# The public face ------------------------------------------------------------------------------------------------------


def test_no_framework_is_imported_unless_it_is_asked_for() -> None:
    program = "import sys, licet.adapters; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    tops = {name.partition(".")[0] for name in loaded.stdout.split()}
    assert not tops & {"agents", "claude_agent_sdk", "langchain", "langchain_core", "langgraph", "mcp", "pydantic_ai"}


@pytest.mark.parametrize("name", ["pydantic_ai", "openai_agents", "langchain", "claude_agent_sdk"])
def test_a_framework_that_is_not_installed_is_named(name: str) -> None:
    extra = name.replace("_", "-")
    with pytest.raises(ModuleNotFoundError, match=rf"`pip install 'licet\[{extra}\]'`"):
        getattr(licet.adapters, name)


def test_another_name_is_no_framework() -> None:
    with pytest.raises(AttributeError, match="crewai"):
        _ = licet.adapters.crewai
