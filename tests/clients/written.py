"""Configurations as people and programs write them: random blanks, comments, trailing commas, line endings."""

import json
import random
from typing import Any

from hypothesis import strategies as st

NAMES = st.text(st.sampled_from('abcXY_-.é "\\/{},:#=[]'), min_size=1, max_size=6)
TEXTS = st.text(st.sampled_from("ab/{}[],:\"\\#=' é\n//*"), max_size=8)
SERVERS = st.dictionaries(
    NAMES,
    st.fixed_dictionaries(
        {"command": TEXTS, "args": st.lists(TEXTS, max_size=3)},
        optional={"env": st.dictionaries(NAMES, TEXTS, max_size=2), "on": st.booleans(), "n": st.integers(0, 9)},
    ),
    min_size=1,
    max_size=5,
)


class JsoncWriter:
    """Writes JSON; every comment that it writes outside of a server entry has a number of its own."""

    def __init__(self, chance: random.Random, *, strict: bool) -> None:
        self._chance, self._strict = chance, strict
        self._newline = chance.choice(["\n", "\r\n"])
        self.comments: list[str] = []
        self._inside = 0

    def document(self, before: Any, servers: dict[str, Any], after: Any) -> str:
        mark = self._chance.choice(["", "\ufeff"])
        parts = {"first": before, "mcpServers": servers, "last": after}
        return mark + self._gap() + self._value(parts, depth=0) + self._gap()

    def _gap(self) -> str:
        kinds = ["", " ", "\t", self._newline, self._newline + "    "]
        if not self._strict:
            kinds += ["/**/", "//"]
        kind = self._chance.choice(kinds)
        if kind not in ("/**/", "//"):
            return kind
        text = f'<{"in" if self._inside else "out"} {len(self.comments)} " }} ] , >'
        if not self._inside:
            self.comments.append(text)
        return f"/*{text}*/" if kind == "/**/" else f"//{text}{self._newline}"

    def _value(self, value: Any, depth: int) -> str:
        if not isinstance(value, dict):
            return json.dumps(value, ensure_ascii=self._chance.random() < 0.5)
        members = []
        for name, one in value.items():
            is_entry = depth == 1 and isinstance(one, dict)
            # A comment between a key and its value belongs to the entry.
            lead = self._gap()
            self._inside += is_entry
            text = f"{json.dumps(name)}{self._gap()}:{self._gap()}{self._value(one, depth + 1)}"
            self._inside -= is_entry
            members.append(f"{lead}{text}{self._gap()}")
        trailing = "," if members and not self._strict and self._chance.random() < 0.4 else ""
        return "{" + ",".join(members) + trailing + self._gap() + "}"


class TomlWriter:
    """Writes TOML, with entries as tables, as tables with inner tables, as lines of one table, or as dotted keys."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._newline = chance.choice(["\n", "\r\n"])
        self.comments: list[str] = []

    def document(self, servers: dict[str, Any]) -> str:
        style = self._chance.choice(["tables", "lines", "dotted"])
        lines = [*self._comment(), 'first = """', "[mcp_servers.no]", '# no comment"""', *self._comment()]
        if style == "dotted":
            for name, one in servers.items():
                for key, value in one.items():
                    lines += [f"mcp_servers.{toml(name)}.{toml(key)} = {toml(value)}", *self._blank()]
        elif style == "lines":
            lines += ["[mcp_servers]"]
            for name, one in servers.items():
                lines += [f"  {toml(name)} = {toml(one)}  # at the end", *self._comment()]
        else:
            for name, one in servers.items():
                lines += [*self._comment(), f"[ mcp_servers . {toml(name)} ]  # a header"]
                inner = {
                    key: value for key, value in one.items() if isinstance(value, dict) and self._chance.random() < 0.7
                }
                lines += [f"{toml(key)} = {self._long(value)}" for key, value in one.items() if key not in inner]
                for key, value in inner.items():
                    lines += [*self._blank(), f"[mcp_servers.{toml(name)}.{toml(key)}]"]
                    lines += [f"{toml(variable)} = {toml(text)}" for variable, text in value.items()]
        lines += [*self._blank(), *self._comment(), "[last]", "a = '''", "[mcp_servers.x]'''"]
        return self._newline.join(lines) + self._chance.choice(["", self._newline])

    def _long(self, value: Any) -> str:
        if not isinstance(value, list) or self._chance.random() < 0.5:
            return toml(value)
        inner = "".join(f"  {toml(one)},  # ] inside{self._newline}" for one in value)
        return f"[{self._newline}{inner}]"

    def _blank(self) -> list[str]:
        return [""] * self._chance.randrange(3)

    def _comment(self) -> list[str]:
        if self._chance.random() < 0.5:
            return self._blank()
        self.comments.append(f"# <out {len(self.comments)} [mcp_servers.x] >")
        return [*self._blank(), self.comments[-1]]


def toml(value: Any) -> str:
    """A value, or a key, as TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
