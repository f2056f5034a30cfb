"""What one server entry of a client says: a command or an address, with its variables and headers.

An entry that licet could not start in the same way stays where it is, with the reason: it is never moved in part.

Adds values to a file of secrets: `NAME=value` lines that only this user can read.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from msgspec import Struct

from licet.backends.secrets import parse
from licet.clients.jsonc import looks_random, secret_word
from licet.clients.known import Client, Unusable, own_directory, read_own, replace_own, write_own
from licet.core.late_pattern import late_pattern
from licet.guard.ports import Unavailable

_URLS = ("url", "httpUrl", "serverUrl")
_STREAMS = ("http", "streamable-http", "streamableHttp", "streamable_http")
# Keys about how the client treats a server. The gateway has its own way for each.
OF_THE_CLIENT = frozenset(
    (
        "timeout",
        "description",
        "trust",
        "includeTools",
        "excludeTools",
        "autoApprove",
        "alwaysAllow",
        "alwaysLoad",
        "startup_timeout_sec",
        "startup_timeout_ms",
        "tool_timeout_sec",
        "enabled_tools",
        "disabled_tools",
        "default_tools_approval_mode",
        "tools",
        "required",
        "gallery",
        "version",
        "dev",
        "name",
        "displayName",
        "icon",
        "instructions",
        "supports_parallel_tool_calls",
    )
)
# Those of them that let a client call tools without asking.
APPROVALS = frozenset(("trust", "autoApprove", "alwaysAllow", "default_tools_approval_mode", "tools"))
_READ = frozenset(
    ("type", "transport", "source", "command", "args", "env", "cwd", "headers", "enabled", "disabled", *_URLS)
    + ("http_headers", "env_http_headers", "env_vars")
)
_OF_A_GATEWAY = frozenset(("type", "command", "args", "env", "env_vars", "enabled", "disabled")) | OF_THE_CLIENT
_VARIABLE = late_pattern(r"\$\{([^}]*)\}")
_BARE_VARIABLE = late_pattern(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_REFERENCE = late_pattern(r"\$\{(?:env:)?[A-Za-z_][A-Za-z0-9_]*\}|\$[A-Za-z_][A-Za-z0-9_]*")
_FROM_ENVIRONMENT = late_pattern(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)")
# Variables that make a program load other code, whatever their value is; and those that say where licet finds programs
# and the list of what was accepted, which are ordinary if each has the value that it has for the client.
_OF_LOADERS = late_pattern(r"(PYTHON|LD_|DYLD_|NODE_).*", re.IGNORECASE)
_OF_PLACES = late_pattern(r"(XDG_|LICET_|NPM_CONFIG_|PIP_|UV_|GIT_).*|PATH|HOME|TMPDIR|BASH_ENV|ENV", re.IGNORECASE)


class Stays(Struct, frozen=True):
    """An entry that is left as it is, and why."""

    name: str
    reason: str


class Entry(Struct, frozen=True, kw_only=True):
    """A server as a client starts or reaches it.

    `values` are literal values of variables, or of headers if there is a `url`; `references` are the variables of the
    client's environment that others are taken from. `carried` is what the client must pass on to the gateway for these.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    values: Mapping[str, str] = {}
    references: Mapping[str, str] = {}
    carried: Mapping[str, str] = {}  # variable -> as the client writes it
    listed: tuple[str, ...] = ()  # variables that the client passes on by name
    empty: tuple[str, ...] = ()  # variables without a value
    dropped: tuple[str, ...] = ()  # keys that have no meaning for the gateway


class _Unfit(Exception):
    """The reason why an entry stays."""


def read_entry(name: str, data: object, client: Client, workdir: str, program: str) -> Entry | Stays:
    """What an entry says, or why it stays. `workdir` is the project if that is where the gateway works, else empty.

    `program` is the path of this licet.
    """
    if starts_gateway(data, program):
        fix = "" if "--accepted" in data["args"] else "; with `--accepted` it would start only what you have accepted"
        return Stays(name, f"it is a gateway already, for another policy or with other options{fix}")
    try:
        return _read(name, data, client, workdir)
    except _Unfit as why:
        return Stays(name, str(why))


def starts_gateway(data: object, program: str) -> TypeGuard[dict[str, Any]]:
    """Whether an entry starts the gateway of this licet, whose program is at a path, and nothing else.

    A program of this name elsewhere, such as `./licet`, is a server like any other. So is this licet with a variable
    of the entry's own, which could make Python load other code.
    """
    if not isinstance(data, dict) or not data.keys() <= _OF_A_GATEWAY:
        return False
    command, args = data.get("command"), data.get("args")
    if not isinstance(command, str) or not isinstance(args, list) or args[:1] != ["gateway"]:
        return False
    passed = passed_on(data) == data.get("env", {}) and passed_by_name(data) == data.get("env_vars", [])
    return passed and _is_program(command, program)


def _is_program(command: str, program: str) -> bool:
    found = (
        command if os.path.isabs(command) else shutil.which(command) if os.path.basename(command) == command else None
    )
    return found is not None and os.path.realpath(found) == os.path.realpath(shutil.which(program) or program)


def passed_on(data: Mapping[str, Any]) -> dict[str, str]:
    """The variables of an entry whose value is a variable of the client's environment, and that load no other code.

    Such a value may be the project's: `${PWD}`.
    """
    env = data.get("env")
    given = env.items() if isinstance(env, dict) else ()
    return {
        name: value
        for name, value in given
        if isinstance(value, str) and _REFERENCE.fullmatch(value) and not _steers(name, value)
    }


def _steers(name: str, value: str) -> bool:
    is_own = value.strip("${}").removeprefix("env:") == name
    return bool(_OF_LOADERS.fullmatch(name) or (_OF_PLACES.fullmatch(name) and not is_own))


def passed_by_name(data: Mapping[str, Any]) -> list[str]:
    """The variables that an entry lists to be passed on, and that load no other code."""
    listed = data.get("env_vars", [])
    known = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    return [name for name in known if not _OF_LOADERS.fullmatch(name)]


def _read(name: str, data: object, client: Client, workdir: str) -> Entry:
    if not isinstance(data, dict):
        raise _Unfit("it is no table")
    if data.get("disabled") is True or data.get("enabled") is False:
        raise _Unfit("it is switched off")
    if data.get("source", "custom") != "custom":
        raise _Unfit("an extension of the client starts it")
    if isinstance(data.get("command"), dict):  # an older form of Zed
        inner = data["command"]
        data = {**data, "command": inner.get("path"), **{key: one for key, one in inner.items() if key != "path"}}
    if unknown := sorted(data.keys() - _READ - OF_THE_CLIENT):
        raise _Unfit(f"it has the key `{unknown[0]}`, which the gateway has nothing for")
    dropped = tuple(sorted(data.keys() & OF_THE_CLIENT))
    urls = [key for key in _URLS if key in data]
    if bool(urls) == ("command" in data) or len(urls) > 1:
        raise _Unfit("it has to have either one `command` or one address")
    entry = _remote(name, data, client, urls[0], dropped) if urls else _local(name, data, client, workdir, dropped)
    if steering := sorted(one for one in (*entry.carried, *entry.listed) if _OF_LOADERS.fullmatch(one)):
        raise _Unfit(f"it needs `{steering[0]}` of the client, and a gateway that gets that could load other code")
    return entry


def _local(name: str, data: Mapping[str, Any], client: Client, workdir: str, dropped: tuple[str, ...]) -> Entry:
    if data.get("type", "stdio") != "stdio":
        raise _Unfit(f"it has a command and the type `{data['type']}`")
    if any(key in data for key in ("headers", "http_headers", "env_http_headers")):
        raise _Unfit("it has a command and headers")
    if (directory := data.get("cwd")) is not None and not _is_workdir(directory, workdir):
        raise _Unfit("it has a directory of its own (`cwd`), and the gateway starts servers in one directory")
    args = data.get("args", [])
    if not isinstance(args, list):
        raise _Unfit("its `args` are no list")
    words = tuple(_word(word, workdir) for word in (data["command"], *args))
    if (place := secret_word(words)) is not None:
        where = "its command" if place == 0 else f"argument {place}"
        raise _Unfit(f"{where} looks like a token, and policy must have none: pass it in a variable instead")
    listed = data.get("env_vars", [])
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise _Unfit("its `env_vars` are no list of names")
    given = _given(data.get("env", {}), "env", client)
    references = {**given.references, **{one: one for one in listed}}
    return Entry(
        name=name,
        command=words,
        values=given.values,
        references=references,
        carried=given.carried,
        listed=tuple(listed),
        empty=given.empty,
        dropped=dropped,
    )


def _remote(name: str, data: Mapping[str, Any], client: Client, key: str, dropped: tuple[str, ...]) -> Entry:
    url, kind = data[key], data.get("type", data.get("transport"))
    if kind not in (None, *_STREAMS):
        raise _Unfit("it uses an older transport (SSE), which the gateway does not")
    if not isinstance(url, str) or _VARIABLE.search(url):
        raise _Unfit("its address is made of variables of the client")
    if kind is None and ((key == "url" and client.url_is_sse) or url.rstrip("/").endswith("/sse")):
        raise _Unfit("it uses an older transport (SSE), which the gateway does not")
    if "?" in url or "#" in url or looks_random(url):
        raise _Unfit("its address has more than a host and a path, which may be a token")
    if any(data.get(one) for one in ("args", "env", "env_vars", "cwd")):
        raise _Unfit("it has an address, and keys about a process")
    given = _given({**_table(data, "headers"), **_table(data, "http_headers")}, "headers", client)
    from_environment = _table(data, "env_http_headers")
    if not all(isinstance(one, str) for one in from_environment.values()):
        raise _Unfit("its `env_http_headers` are no names of variables")
    return Entry(
        name=name,
        url=url,
        values=given.values,
        references={**given.references, **from_environment},
        carried=given.carried,
        listed=tuple(from_environment.values()),
        empty=given.empty,
        dropped=dropped,
    )


def _table(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = data.get(key) or {}
    if not isinstance(found, dict):
        raise _Unfit(f"its `{key}` are no table")
    return found


def _is_workdir(directory: object, workdir: str) -> bool:
    if not isinstance(directory, str) or not workdir:
        return False
    return directory in (".", "${workspaceFolder}") or os.path.normpath(directory) == workdir


def _word(word: object, workdir: str) -> str:
    """A word of a command, with the variables that policy has names for replaced."""
    if not isinstance(word, str):
        raise _Unfit("its command has something other than text in it")
    for found in _VARIABLE.finditer(word):
        known = (found[1] == "workspaceFolder" and workdir) or (found[1] in ("userHome", "HOME") and found.start() == 0)
        if not known or (found[1] != "workspaceFolder" and word[found.end() : found.end() + 1] != "/"):
            raise _Unfit(f"its command has the variable `{found[0]}` of the client")
    return re.sub(r"^\$\{(?:userHome|HOME)\}", "~", word).replace("${workspaceFolder}", "${workdir}")


class _Given(Struct, frozen=True):
    values: Mapping[str, str]
    references: Mapping[str, str]
    carried: Mapping[str, str]
    empty: tuple[str, ...]


def _given(found: object, key: str, client: Client) -> _Given:
    """Sort values into literal ones, and those that are one variable of the client's environment."""
    if not isinstance(found, dict):
        raise _Unfit(f"its `{key}` is no table")
    values: dict[str, str] = {}
    references: dict[str, str] = {}
    carried: dict[str, str] = {}
    for name, value in found.items():
        if isinstance(value, bool | int | float):
            value = str(value).lower() if isinstance(value, bool) else str(value)
        if not isinstance(value, str):
            raise _Unfit(f"`{key}.{name}` is no text")
        whole = _VARIABLE.fullmatch(value)
        bare = _BARE_VARIABLE.fullmatch(value) if client.bare_variables else None
        variable = bare[1] if bare else _plain_variable(whole[1]) if whole else ""
        if variable:
            references[name], carried[variable] = variable, value
        elif _VARIABLE.search(value) or (client.bare_variables and _BARE_VARIABLE.search(value)):
            raise _Unfit(f"`{key}.{name}` is made of variables of the client")
        else:
            values[name] = value
    empty = tuple(name for name, value in values.items() if not value)
    return _Given({name: value for name, value in values.items() if value}, references, carried, empty)


def _plain_variable(text: str) -> str:
    found = _FROM_ENVIRONMENT.fullmatch(text)
    return found[1] if found and text not in ("workspaceFolder", "userHome", "pathSeparator", "cwd") else ""


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}

SECRETS_FILE = "mcp-secrets.env"  # in the state directory


def secret_line(name: str, value: str) -> str | None:
    """The line for a value, None if the file has no spelling for it. It was read back, so it is right."""
    escaped = "".join(_ESCAPES.get(char, char) for char in value)
    for line in (f"{name}={value}", f"{name}='{value}'", f'{name}="{escaped}"'):
        try:
            if parse("", line.encode()) == {name: value}:
                return line
        except (Unavailable, UnicodeEncodeError):
            continue
    return None


def known_secrets(file: Path) -> dict[str, str]:
    """The values that a file of secrets has; none if it does not exist. Raises `Unusable` if it is not fit."""
    seen = read_own(file, file.parent)
    if seen is None:
        return {}
    if seen.mode & ~0o600:
        raise Unusable(f"{file} has mode {seen.mode:04o}, others may read or change it: run `chmod 600 {file}`")
    try:
        return parse(str(file), seen.data)
    except Unavailable as wrong:
        raise Unusable(str(wrong)) from None


def add_secrets(file: Path, values: Mapping[str, str]) -> tuple[str, ...]:
    """Append the values that a file does not have yet, and return their names. No value that it has is changed."""
    known = known_secrets(file)
    new = {name: value for name, value in values.items() if name not in known}
    lines = [secret_line(name, value) for name, value in new.items()]
    if None in lines:
        raise Unusable(f"{file} has no spelling for a value")
    if not new:
        return ()
    own_directory(file.parent)
    seen = read_own(file, file.parent)
    before = seen.data if seen else b""
    joint = b"" if not before or before.endswith(b"\n") else b"\n"
    data = before + joint + "".join(f"{line}\n" for line in lines).encode()
    if seen is None:
        write_own(file, data)
    else:
        replace_own(seen, data, file.parent)
    return tuple(new)
