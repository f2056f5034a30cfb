"""Adapters: the tools of a gate as tools of agent frameworks, and a framework's tools behind a gate.

Adapters for agent frameworks: the tools of a gate for a framework, and a framework's tools for a gate.

    import licet.adapters

    tools = licet.adapters.pydantic_ai.tools(gate, session="s-42")

`pydantic_ai`, `openai_agents`, `langchain` and `claude_agent_sdk` are modules; each imports its framework when it is
first used. `openai_tools` and `anthropic_tools` need none, and `governed` only that of the tool. See docs/adapters.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from licet.adapters.foreign import governed
from licet.adapters.framework_calls import PlainTools, Tools, anthropic_tools, openai_tools

if TYPE_CHECKING:
    from licet.adapters import claude_agent_sdk, langchain, openai_agents, pydantic_ai

__all__ = [
    "PlainTools",
    "Tools",
    "anthropic_tools",
    "claude_agent_sdk",
    "governed",
    "langchain",
    "openai_agents",
    "openai_tools",
    "pydantic_ai",
]

_FRAMEWORKS = ("claude_agent_sdk", "langchain", "openai_agents", "pydantic_ai")


def __getattr__(name: str) -> object:
    if name not in _FRAMEWORKS:
        raise AttributeError(f"module `licet.adapters` has no attribute `{name}`")
    try:
        module = import_module(f"licet.adapters.{name}")
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "licet":
            raise
        fix = f"`pip install 'licet[{name.replace('_', '-')}]'`"
        raise ModuleNotFoundError(f"{missing}: {fix}", name=missing.name) from missing
    globals()[name] = module
    return module
