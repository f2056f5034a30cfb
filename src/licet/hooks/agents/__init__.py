"""The coding agents whose hooks are known: one file each, with its tools, its events and its words.

An agent's file is imported when it is first asked for, so that a hook loads one of them.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module

from licet.core.policy.servers import CODING_AGENTS
from licet.hooks.agents.dialect import Dialect

NAMES = CODING_AGENTS

_OTHER_NAMES: Mapping[str, str] = {"claude-code": "claude"}


class UnknownAgent(ValueError):
    """A name that is no agent's."""


class _Agents(Mapping[str, Dialect]):
    def __getitem__(self, name: str) -> Dialect:
        if name not in NAMES:
            raise KeyError(name)
        dialect: Dialect = import_module(f"licet.hooks.agents.{name}").DIALECT
        return dialect

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


AGENTS: Mapping[str, Dialect] = _Agents()


def agent_named(text: str) -> Dialect:
    """The agent that a command names. Raises `UnknownAgent`."""
    name = _OTHER_NAMES.get(text, text)
    if name not in NAMES:
        from licet.core.values import near_hint

        hint = near_hint(text, (*NAMES, *_OTHER_NAMES))
        known = ", ".join(f"`{one}`" for one in NAMES)
        raise UnknownAgent(f"expected a coding agent: {known}" + (f"; {hint}" if hint else ""))
    return AGENTS[name]
