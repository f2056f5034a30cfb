"""The coding agents from npm: where their programs are, how each is set up for a played model, and how a session runs.

`LICET_AGENTS` names the directory that they are installed in: `make test-peers`. Nothing is reached but the played
model. Each agent runs as an ordinary user, since root is another case for some of them, in a home that is given.
"""

import json
import os
import platform
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import Struct
from msgspec.structs import replace

from ordinary_user import NOBODY
from peers.agents.played_model import Asked, Call, PlayedModel, Result, Script, Step, playing

PATIENCE = 300  # seconds for a whole session: one that hangs, not one that is slow
KEY = "played-key"
PROMPT = "Do what is to be done."


class Shown(NamedTuple):
    """What an agent tells the model of a shell line. Some do not tell the exit code."""

    output: str
    code: int | None


class Agent(Struct, frozen=True):
    """One agent: its package on npm, its program, and how it is started without a person.

    Its words and variables name the model at an address, so its home may be empty, or have settings that a test is
    about. `shell`, `read`, `edit`, `write` and `fetch` are calls of its tools. Paths are absolute.
    """

    name: str
    package: str
    program: str  # below the directory of npm, as `npm install --global` would put it on PATH
    native: str  # the file that runs in the end, if the program only starts it
    words: Callable[[str, str], Sequence[str]]  # for a prompt, and a model at an address
    variables: Callable[[str], Mapping[str, str]]
    shell: Callable[[str], Call]
    read: Callable[[str], Call]
    edit: Callable[[str, str, str], Call]
    write: Callable[[str, str], Call]
    fetch: Callable[[str], Call]
    shown: Callable[[str], "Shown"]  # what a result of its shell says
    unattended: tuple[str, ...] = ()  # words that make it run every call without a question


class Session(Struct, frozen=True):
    """What came of a session: how it ended, and what the agent told the model."""

    results: list[Result]
    exit_code: int
    stdout: str
    stderr: str
    requests: list[Asked]
    model: PlayedModel

    @property
    def texts(self) -> list[str]:
        """The text of each result."""
        return [result.text for result in self.results]


def run_agent(
    agent: Agent,
    project: Path,
    home: Path,
    calls: Sequence[Step],
    prompt: str = PROMPT,
    environment: Mapping[str, str] = {},
    *,
    words: Sequence[str] | None = None,
    scripts: Sequence[Script] = (),
) -> Session:
    """Run one session of an agent whose model makes these calls and then says that it is done.

    `words` stands for what makes the agent run every call unasked, and `scripts` is for subagents.
    """
    with playing([Script("", calls), *scripts]) as model:
        given = {**bare_environment(home), **agent.variables(model.url), **environment}
        command = [program(agent), *arguments(agent, prompt, model, words)]
        return session_of(model, settled(command, project, given))


def arguments(agent: Agent, prompt: str, model: PlayedModel, words: Sequence[str] | None = None) -> list[str]:
    """The words after the name of an agent's program."""
    return [*agent.words(prompt, model.url), *(agent.unattended if words is None else words)]


def session_of(model: PlayedModel, ended: tuple[int, str, str]) -> Session:
    """What came of a session that has ended."""
    return Session(model.results(), *ended, model.asked, model)


def bare_environment(home: Path) -> dict[str, str]:
    """The few variables that every agent gets. Its proxy refuses all hosts but this machine, at once."""
    path = os.pathsep.join((str(commands()), *dict.fromkeys(("/usr/local/bin", "/usr/bin", "/bin"))))
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    loopback = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
    own = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "xterm-256color", "SHELL": "/bin/bash"}
    return {**own, **proxies, **loopback}


def settled(command: Sequence[str], project: Path, environment: Mapping[str, str]) -> tuple[int, str, str]:
    """Run a command as an ordinary user in the project, with all that it starts ended with it."""
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
    with subprocess.Popen(
        command, cwd=project, env=dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True, **user,  # type: ignore[call-overload]
    ) as started:  # fmt: skip
        try:
            out, err = started.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            out, err = started.communicate()
            err += f"\n(ended after {PATIENCE} s)"
        return started.returncode, out, err


def owned(root: Path, path: Path, text: str) -> None:
    """Write a file that belongs, with the directories between, to who runs the agents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    give(root)


def give(tree: Path) -> None:
    """Make a tree belong to who runs the agents."""
    if os.getuid() == 0:
        for path in (tree, *tree.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


# Where the programs are -----------------------------------------------------------------------------------------------


@cache
def folder() -> Path:
    """The directory that npm has installed the agents in."""
    if not (given := os.environ.get("LICET_AGENTS")):
        pytest.skip("needs the coding agents of npm: make test-peers")
    return Path(given) / "node_modules"


def program(agent: Agent) -> str:
    """The program of an agent, as it is found on PATH; a test without it is skipped."""
    if not (folder() / agent.native).exists():
        pytest.skip(f"{agent.package} has no program for this machine")
    if not _reached(folder() / agent.native):
        pytest.skip(f"no ordinary user can get to {folder()}: root keeps it in a directory of its own")
    return str(commands() / agent.name)


@cache
def _reached(file: Path) -> bool:
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
    tried = subprocess.run(["test", "-r", file], check=False, cwd="/", **user)  # type: ignore[call-overload]
    return bool(tried.returncode == 0)


@cache
def commands() -> Path:
    """A directory with the agents' programs, as `npm install --global` leaves them."""
    place = folder().parent / "bin"
    place.mkdir(exist_ok=True)
    for agent in AGENTS.values():
        link, target = place / agent.name, folder() / agent.program
        if not link.is_symlink() or link.readlink() != target:
            new = link.with_name(f".{agent.name}-{os.getpid()}")
            new.symlink_to(target)
            new.replace(link)
    return place


def version(agent: Agent) -> str:
    """The version that is installed."""
    return str(json.loads((folder() / agent.package / "package.json").read_text("utf-8"))["version"])


# The agents -----------------------------------------------------------------------------------------------------------

_CPU = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine(), "x64")
_CODEX_TARGET = {"x64": "x86_64", "arm64": "aarch64"}[_CPU] + "-unknown-linux-musl"

_NOTHING = {"(Bash completed with no output)", "(empty)", "(no output)"}  # as agents say it


def _shown(pattern: str) -> Callable[[str], Shown]:
    """A reader of results: the groups `output` and `code`, which is 0 where a result names none."""

    def read(text: str) -> Shown:
        match = re.fullmatch(pattern, text, re.DOTALL)
        assert match, f"another form of result: {text!r}"
        output = match["output"].strip("\n")
        return Shown("" if output in _NOTHING else output, int(match["code"] or 0))

    return read


def _in_prompt(prompt: str, url: str) -> Sequence[str]:
    """The words of an agent whose model is named by variables."""
    return "-p", prompt


def _described(tool: str) -> Callable[[str], Call]:
    """Calls of a shell tool that wants to be told what a line is for."""
    return lambda line: Call(tool, {"command": line, "description": "a line"})


CLAUDE = Agent(
    name="claude",
    package="@anthropic-ai/claude-code",
    program=f"@anthropic-ai/claude-code-linux-{_CPU}/claude",  # the postinstall script links this file
    native=f"@anthropic-ai/claude-code-linux-{_CPU}/claude",
    words=_in_prompt,
    unattended=("--dangerously-skip-permissions",),
    variables=lambda url: {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    },
    shell=_described("Bash"),
    read=lambda path: Call("Read", {"file_path": path}),
    edit=lambda path, old, new: Call("Edit", {"file_path": path, "old_string": old, "new_string": new}),
    write=lambda path, text: Call("Write", {"file_path": path, "content": text}),
    fetch=lambda url: Call("WebFetch", {"url": url, "prompt": "what does it say?"}),
    shown=_shown(r"(Exit code (?P<code>\d+)\n?)?(?P<output>.*?)(\n\[This command modified [^\n]*\])?"),
)


def _codex_words(prompt: str, url: str, model: str) -> list[str]:
    settings = {
        "model": model,
        "model_provider": "played",
        "model_providers.played.name": "played",
        "model_providers.played.base_url": f"{url}/v1",
        "model_providers.played.env_key": "PLAYED_KEY",
        "model_providers.played.wire_api": "responses",
        "model_providers.played.request_max_retries": 0,
        "model_providers.played.stream_max_retries": 0,
        "analytics.enabled": False,
        "check_for_update_on_startup": False,
    }
    given = [word for key, value in settings.items() for word in ("-c", f"{key}={json.dumps(value)}")]
    return ["exec", "--skip-git-repo-check", *given, prompt]


def _patch(*changes: str) -> str:
    return "\n".join(("*** Begin Patch", *changes, "*** End Patch"))


CODEX = Agent(
    name="codex",
    package="@openai/codex",
    program="@openai/codex/bin/codex.js",
    native=f"@openai/codex-linux-{_CPU}/vendor/{_CODEX_TARGET}/bin/codex",
    words=lambda prompt, url: _codex_words(prompt, url, "gpt-5.5"),
    unattended=("--dangerously-bypass-approvals-and-sandbox",),
    variables=lambda url: {"PLAYED_KEY": KEY},
    shell=lambda line: Call("exec_command", {"cmd": line}),
    read=lambda path: Call("exec_command", {"cmd": f"cat {path}"}),  # it has a tool for images alone
    edit=lambda path, old, new: Call(
        "apply_patch", text=_patch(f"*** Update File: {path}", "@@", f"-{old}", f"+{new}")
    ),
    write=lambda path, text: Call(
        "apply_patch", text=_patch(f"*** Add File: {path}", *(f"+{line}" for line in text.splitlines()))
    ),
    fetch=lambda url: Call("exec_command", {"cmd": f"curl -sS {url}"}),  # it has no other way to the web
    shown=_shown(r".*?Process exited with code (?P<code>\d+)\n.*?\nOutput:(?P<output>.*)"),
)


def _script(tool: str, argument: object) -> Call:
    return Call("exec", text=f"text(await tools.{tool}({json.dumps(argument)}))", namespace="functions")


def _of_script(found: Mapping[str, Any]) -> Shown:
    return Shown(found["output"].strip("\n"), found["exit_code"])


# The same program with a newer model: it writes JavaScript that calls the tools.
CODEX_CODE_MODE = replace(
    CODEX,
    words=lambda prompt, url: _codex_words(prompt, url, "gpt-5.6-sol"),
    shell=lambda line: _script("exec_command", {"cmd": line}),
    read=lambda path: _script("exec_command", {"cmd": f"cat {path}"}),
    edit=lambda path, old, new: _script("apply_patch", CODEX.edit(path, old, new).text),
    write=lambda path, text: _script("apply_patch", CODEX.write(path, text).text),
    fetch=lambda url: _script("exec_command", {"cmd": f"curl -sS {url}"}),
    shown=lambda text: _of_script(json.loads(text[text.index("{") :])),
)

GEMINI = Agent(
    name="gemini",
    package="@google/gemini-cli",
    program="@google/gemini-cli/bundle/gemini.js",
    native="@google/gemini-cli/bundle/gemini.js",
    words=lambda prompt, url: ("-p", prompt, "-m", "gemini-2.5-pro", "--skip-trust"),
    unattended=("--approval-mode", "yolo"),
    variables=lambda url: {
        # With these it needs no file of settings that names a kind of login.
        "GOOGLE_GENAI_USE_VERTEXAI": "true",
        "GOOGLE_API_KEY": KEY,
        "GOOGLE_VERTEX_BASE_URL": url,
    },
    shell=_described("run_shell_command"),
    read=lambda path: Call("read_file", {"file_path": path}),
    edit=lambda path, old, new: Call(
        "replace", {"file_path": path, "old_string": old, "new_string": new, "instruction": "change it"}
    ),
    write=lambda path, text: Call("write_file", {"file_path": path, "content": text}),
    fetch=lambda url: Call("web_fetch", {"prompt": f"what does {url} say?"}),
    shown=_shown(
        r"<untrusted_context>\nOutput: (?P<output>.*?)(\nExit Code: (?P<code>\d+))?"
        r"(\n[A-Z][\w ]+: [^\n]*)*\n</untrusted_context>"
        r"(\n\n\[System\] Tool input parameters were modified by a hook before execution\.)?"
    ),
)

COPILOT = Agent(
    name="copilot",
    package="@github/copilot",
    program="@github/copilot/npm-loader.js",
    native=f"@github/copilot-linux-{_CPU}/copilot",
    words=_in_prompt,
    unattended=("--allow-all",),
    variables=lambda url: {
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_API_KEY": KEY,
        "COPILOT_MODEL": "gpt-4.1",
        "COPILOT_OFFLINE": "true",
    },
    shell=_described("bash"),
    read=lambda path: Call("view", {"path": path}),
    edit=lambda path, old, new: Call("edit", {"path": path, "old_str": old, "new_str": new}),
    write=lambda path, text: Call("create", {"path": path, "file_text": text}),
    fetch=lambda url: Call("web_fetch", {"url": url}),  # not offered to it offline
    shown=_shown(r"(?P<output>.*)<shellId: \w+ completed with exit code (?P<code>\d+)>"),
)


def _opencode_settings(url: str) -> str:
    played = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "played",
        "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
        "models": {"model": {"name": "model", "tool_call": True}},
    }
    return json.dumps(
        {"autoupdate": False, "share": "disabled", "small_model": "played/model", "provider": {"played": played}}
    )


OPENCODE = Agent(
    name="opencode",
    package="opencode-ai",
    program=f"opencode-linux-{_CPU}/bin/opencode",  # the postinstall script links this file
    native=f"opencode-linux-{_CPU}/bin/opencode",
    words=lambda prompt, url: ("run", "-m", "played/model", prompt),
    unattended=("--auto",),
    variables=lambda url: {
        "OPENCODE_CONFIG_CONTENT": _opencode_settings(url),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "npm_config_fetch_retries": "0",  # with a plugin or a `.opencode`, it asks the registry first, for minutes
    },
    shell=_described("bash"),
    read=lambda path: Call("read", {"filePath": path}),
    edit=lambda path, old, new: Call("edit", {"filePath": path, "oldString": old, "newString": new}),
    write=lambda path, text: Call("write", {"filePath": path, "content": text}),
    fetch=lambda url: Call("webfetch", {"url": url, "format": "text"}),
    shown=lambda text: Shown("" if text in _NOTHING else text.strip("\n"), None),
)

AGENTS: Mapping[str, Agent] = {agent.name: agent for agent in (CLAUDE, CODEX, GEMINI, COPILOT, OPENCODE)}
VARIANTS: Mapping[str, Agent] = {**AGENTS, "codex-code-mode": CODEX_CODE_MODE}
