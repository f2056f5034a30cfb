"""The `servers:` entries that `licet init --mcp` writes: as YAML in a new policy, or added to an existing one.

Values of variables and headers are never part of them, only references to secrets.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import yaml
from msgspec import Struct

from licet.core.decision.foreseen import LOOPBACK, on_this_machine
from licet.errors import LicetError
from licet.policy_files.schema import FORMAT
from licet.surfaces.cli.init_manifest import SCHEMA_LINE
from licet.surfaces.clients.entries import Entry

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_PLAIN = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


class NotWritten(LicetError):
    """An existing policy that the servers cannot be added to without changing what is there."""


class DraftedServer(Struct, frozen=True):
    """A server for the policy, and the values that its secrets stand for."""

    name: str
    data: Mapping[str, Any]  # as it is written under `servers.NAME`
    values: Mapping[str, str]  # secret reference -> value

    @property
    def secrets(self) -> tuple[str, ...]:
        """The references to secrets that it needs."""
        return tuple({**self.data.get("secrets", {}), **self.data.get("headers", {})}.values())

    @property
    def host(self) -> str:
        """The host of its address, as a rule names it; empty for a command."""
        name = urlsplit(self.data.get("url", "")).hostname or ""
        return f"[{name}]" if ":" in name else name


def server_name(name: str) -> str:
    """The name of a client's entry, as the name of a server: `My GitHub_server` is `my-github-server`."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    joined = "-".join(words) or "server"
    return (joined if joined[0].isalpha() else f"s-{joined}")[:28].rstrip("-")


def drafted(name: str, entry: Entry) -> DraftedServer:
    """The server of an entry: variables of the same name are passed on, all other values become secrets."""
    literal = {variable: f"mcp/{name}/{variable}" for variable in entry.values}
    values = {literal[variable]: value for variable, value in entry.values.items()}
    if entry.url:
        headers = {**literal, **entry.references}
        return DraftedServer(name, {"url": entry.url, **({"headers": headers} if headers else {})}, values)
    passed = [variable for variable, source in entry.references.items() if variable == source]
    renamed = {variable: source for variable, source in entry.references.items() if variable != source}
    secrets = {**literal, **renamed}
    data: dict[str, Any] = {"command": list(entry.command)}
    data |= {"env": passed} if passed else {}
    data |= {"secrets": secrets} if secrets else {}
    return DraftedServer(name, data, values)


def server_lines(servers: Iterable[DraftedServer]) -> Iterator[str]:
    """The lines of some servers, as they stand below `servers:`, without indentation."""
    for server in servers:
        yield f"{_word(server.name)}:"
        for key, value in server.data.items():
            if not isinstance(value, Mapping):
                yield f"  {key}: {json.dumps(value, ensure_ascii=False)}"
                continue
            yield f"  {key}:"
            yield from (f"    {_word(name)}: {json.dumps(one, ensure_ascii=False)}" for name, one in value.items())


def new_policy(agent: str, servers: Sequence[DraftedServer], schema: str) -> str:
    """A manifest and workspace in one, for servers whose tools are not known yet: it admits none."""
    secrets = list(dict.fromkeys(one for server in servers for one in server.secrets))
    variables = list(dict.fromkeys(one for server in servers for one in server.data.get("env", ())))
    hosts = list(dict.fromkeys(server.host for server in servers if server.host))
    is_local = any(on_this_machine(host) or host == "[::1]" or host.startswith("127.") for host in hosts)
    lines = [
        SCHEMA_LINE.format(schema),
        "#",
        "# Written by `licet init --mcp` from the configurations of MCP clients. Nothing is allowed yet:",
        "#   licet lock --init   starts each server behind walls, and drafts its `grants` and `tools`",
        *(["#                       (with --secrets FILE; without it, the command names the file)"] if secrets else []),
        "#   licet lock          pins what the servers offer; review licet.lock and commit it",
        "#   licet surface       what can the agent reach?",
        "",
        f"licet: {FORMAT}  # the format of this file",
        f"agent: {json.dumps(agent)}",
        "",
        "# What the agent may touch. What is not here is denied.",
        "capabilities:",
        "  # The tools it may call, by full name, such as files.read_file; `licet lock --init` prints them.",
        "  tools: []",
        *_listed("secrets", "Secrets that the servers below are given. Only their names are listed.", secrets),
        *_listed("env", "Variables that are passed on to them.", variables),
    ]
    if hosts:
        lines += ["  # Hosts of servers on other machines.", "  destinations:", "    allow:"]
        lines += [f"      - {json.dumps(host)}" for host in hosts]
    if is_local:
        lines += _listed("private", "Addresses of this machine, where one of them is.", LOOPBACK)
    # Last, since `licet lock --init` adds lines at the end of each server: a comment after it would be cut off its key.
    lines += ["", "servers:", *(f"  {line}" for line in server_lines(servers))]
    return "\n".join(lines) + "\n"


def _listed(key: str, about: str, items: Sequence[str]) -> list[str]:
    return [f"  # {about}", f"  {key}:", *(f"    - {json.dumps(item)}" for item in items)] if items else []


def with_servers(text: str, servers: Sequence[DraftedServer]) -> str:
    """An existing policy with more servers. Everything that was there stays, comments too."""
    if not servers:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    rows = text.split("\n")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise NotWritten("it is not written in lines of `key: value`")
    found = next(((key, value) for key, value in root.value if key.value == "servers"), None)
    if found is None:
        lead = "" if text.endswith("\n") else newline
        added = [*("", "servers:"), *(f"  {line}" for line in server_lines(servers))]
        return _checked(text, text + lead + "".join(line + newline for line in added), servers)
    key, value = found
    if isinstance(value, yaml.MappingNode) and not value.flow_style and value.value:
        indent = " " * value.value[0][0].start_mark.column
    elif isinstance(value, yaml.MappingNode) and not value.value and value.end_mark.line == key.start_mark.line:
        indent = " " * (key.start_mark.column + 2)  # `{}`, which goes
        row, start, end_column = rows[key.start_mark.line], value.start_mark.column, value.end_mark.column
        rows[key.start_mark.line] = row[:start].rstrip() + row[end_column:]
    else:
        raise NotWritten("its `servers` are written on one line")
    end = "\r" if newline == "\r\n" else ""
    line = key.start_mark.line + 1
    rows[line:line] = [f"{indent}{one}{end}" for one in server_lines(servers)]
    return _checked(text, "\n".join(rows), servers)


def _checked(before: str, after: str, servers: Sequence[DraftedServer]) -> str:
    """The new text, once it is sure that it says the same and the new servers."""
    try:
        old, new = yaml.safe_load(before), yaml.safe_load(after)
    except yaml.YAMLError:
        raise NotWritten("the new entries would break it") from None
    expected = {**old, "servers": {**(old.get("servers") or {}), **{one.name: dict(one.data) for one in servers}}}
    if new != expected:
        raise NotWritten("the new entries would change what is there")
    return after


def _word(text: str) -> str:
    is_plain = (_PLAIN.fullmatch(text) or re.fullmatch(r"[a-z][a-z0-9-]*", text)) and text.lower() not in _NOT_PLAIN
    return text if is_plain else json.dumps(text, ensure_ascii=False)
