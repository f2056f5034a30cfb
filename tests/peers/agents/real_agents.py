"""The coding agents from npm: where their programs are, how each is set up for a played model, and how a session runs.

`LICET_AGENTS` names the directory that they are installed in: `make test-peers`. Nothing is reached but the played model.
Each agent runs as an ordinary user, since root is another case for some of them, in a home that has its settings alone.
"""

import json
import os
import platform
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from msgspec import Struct

from ordinary_user import NOBODY
from peers.agents.played_model import Asked, Call, PlayedModel, Result, Script, Step, playing

PATIENCE = 180  # seconds for a whole session: one that hangs, not one that is slow
KEY = "played-key"
PROMPT = "Do what is to be done."


class Agent(Struct, frozen=True):
    """One agent: its package on npm, its program, and how it is started without a person.

    `settings` gives the files of its home, by name, for a model at an address; `shell`, `read`, `edit`, `write` and
    `fetch` are calls of its tools. Paths are absolute.
    """

    name: str
    package: str
    program: str  # below the directory of npm, as `npm install --global` would put it on PATH
    native: str  # the file that runs in the end, if the program only starts it
    words: tuple[str, ...]
    variables: Callable[[str], Mapping[str, str]]
    settings: Callable[[str], Mapping[str, str]]
    shell: Callable[[str], Call]
    read: Callable[[str], Call]
    edit: Callable[[str, str, str], Call]
    write: Callable[[str, str], Call]
    fetch: Callable[[str], Call]
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
    within: Sequence[str] = (),
    host: str = "127.0.0.1",
    files: Mapping[str, str] = {},
) -> Session:
    """Run one session of an agent whose model makes these calls and then says that it is done.

    `words` stands for what makes the agent run every call unasked, `scripts` is for subagents, `files` are further
    settings in the home, and `within` is a command in front of the agent's.
    """
    with playing([Script("", calls), *scripts], host) as model:
        for name, text in {**agent.settings(model.url), **files}.items():
            owned(home, home / name, text)
        given = {**bare_environment(agent, home), **agent.variables(model.url), **environment}
        unattended = agent.unattended if words is None else words
        command = [*within, program(agent), *(word.replace("PROMPT", prompt) for word in agent.words), *unattended]
        code, out, err = settled(command, project, given)
        return Session(model.results(), code, out, err, model.asked, model)


def bare_environment(agent: Agent, home: Path) -> dict[str, str]:
    """The few variables that every agent gets."""
    path = os.pathsep.join((str(commands()), *dict.fromkeys(("/usr/local/bin", "/usr/bin", "/bin"))))
    return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "xterm", "SHELL": "/bin/bash"}


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
    return str(commands() / agent.name)


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
_CODEX_MODEL = "gpt-5.5"  # from 5.6 on they run in code mode

CLAUDE = Agent(
    name="claude",
    package="@anthropic-ai/claude-code",
    program=f"@anthropic-ai/claude-code-linux-{_CPU}/claude",  # the postinstall script links this file
    native=f"@anthropic-ai/claude-code-linux-{_CPU}/claude",
    words=("-p", "PROMPT"),
    unattended=("--dangerously-skip-permissions",),
    variables=lambda url: {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    },
    settings=lambda url: {},
    shell=lambda line: Call("Bash", {"command": line, "description": "a line"}),
    read=lambda path: Call("Read", {"file_path": path}),
    edit=lambda path, old, new: Call("Edit", {"file_path": path, "old_string": old, "new_string": new}),
    write=lambda path, text: Call("Write", {"file_path": path, "content": text}),
    fetch=lambda url: Call("WebFetch", {"url": url, "prompt": "what does it say?"}),
)


def _codex_settings(url: str) -> dict[str, str]:
    lines = (
        f'model = "{_CODEX_MODEL}"',
        'model_provider = "played"',
        "check_for_update_on_startup = false",
        "[model_providers.played]",
        'name = "played"',
        f'base_url = "{url}/v1"',
        'env_key = "PLAYED_KEY"',
        'wire_api = "responses"',
        "request_max_retries = 0",
        "stream_max_retries = 0",
        "[analytics]",
        "enabled = false",
    )
    return {".codex/config.toml": "\n".join(lines) + "\n"}


def _patch(*changes: str) -> str:
    return "\n".join(("*** Begin Patch", *changes, "*** End Patch"))


CODEX = Agent(
    name="codex",
    package="@openai/codex",
    program="@openai/codex/bin/codex.js",
    native=f"@openai/codex-linux-{_CPU}/vendor/{_CODEX_TARGET}/bin/codex",
    words=("exec", "--skip-git-repo-check", "PROMPT"),
    unattended=("--dangerously-bypass-approvals-and-sandbox",),
    variables=lambda url: {"PLAYED_KEY": KEY},
    settings=_codex_settings,
    shell=lambda line: Call("exec_command", {"cmd": line}),
    read=lambda path: Call("view_image", {"path": path}),
    edit=lambda path, old, new: Call("apply_patch", text=_patch(f"*** Update File: {path}", "@@", f"-{old}", f"+{new}")),
    write=lambda path, text: Call("apply_patch", text=_patch(f"*** Add File: {path}", *(f"+{line}" for line in text.splitlines()))),
    fetch=lambda url: Call("exec_command", {"cmd": f"curl -sS {url}"}),
)

GEMINI = Agent(
    name="gemini",
    package="@google/gemini-cli",
    program="@google/gemini-cli/bundle/gemini.js",
    native="@google/gemini-cli/bundle/gemini.js",
    words=("-p", "PROMPT", "-m", "gemini-2.5-pro", "--skip-trust"),
    unattended=("--approval-mode", "yolo"),
    variables=lambda url: {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url},
    settings=lambda url: {
        ".gemini/settings.json": json.dumps(
            {
                "security": {"auth": {"selectedType": "gemini-api-key"}},
                "privacy": {"usageStatisticsEnabled": False},
                "general": {"enableAutoUpdate": False},
            }
        )
    },
    shell=lambda line: Call("run_shell_command", {"command": line, "description": "a line"}),
    read=lambda path: Call("read_file", {"file_path": path}),
    edit=lambda path, old, new: Call(
        "replace", {"file_path": path, "old_string": old, "new_string": new, "instruction": "change it"}
    ),
    write=lambda path, text: Call("write_file", {"file_path": path, "content": text}),
    fetch=lambda url: Call("web_fetch", {"prompt": f"what does {url} say?"}),
)

COPILOT = Agent(
    name="copilot",
    package="@github/copilot",
    program="@github/copilot/npm-loader.js",
    native=f"@github/copilot-linux-{_CPU}/copilot",
    words=("-p", "PROMPT"),
    unattended=("--allow-all",),
    variables=lambda url: {
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_API_KEY": KEY,
        "COPILOT_MODEL": "gpt-4.1",
        "COPILOT_OFFLINE": "true",
    },
    settings=lambda url: {},
    shell=lambda line: Call("bash", {"command": line, "description": "a line"}),
    read=lambda path: Call("view", {"path": path}),
    edit=lambda path, old, new: Call("edit", {"path": path, "old_str": old, "new_str": new}),
    write=lambda path, text: Call("create", {"path": path, "file_text": text}),
    fetch=lambda url: Call("web_fetch", {"url": url}),
)

OPENCODE = Agent(
    name="opencode",
    package="opencode-ai",
    program=f"opencode-linux-{_CPU}/bin/opencode",  # the postinstall script links this file
    native=f"opencode-linux-{_CPU}/bin/opencode",
    words=("run", "-m", "played/model", "PROMPT"),
    unattended=("--auto",),
    variables=lambda url: {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
    settings=lambda url: {
        ".config/opencode/opencode.json": json.dumps(
            {
                "$schema": "https://opencode.ai/config.json",
                "autoupdate": False,
                "share": "disabled",
                "model": "played/model",
                "small_model": "played/model",
                "provider": {
                    "played": {
                        "npm": "@ai-sdk/openai-compatible",
                        "name": "played",
                        "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
                        "models": {"model": {"name": "model", "tool_call": True}},
                    }
                },
            }
        )
    },
    shell=lambda line: Call("bash", {"command": line, "description": "a line"}),
    read=lambda path: Call("read", {"filePath": path}),
    edit=lambda path, old, new: Call("edit", {"filePath": path, "oldString": old, "newString": new}),
    write=lambda path, text: Call("write", {"filePath": path, "content": text}),
    fetch=lambda url: Call("webfetch", {"url": url, "format": "text"}),
)

AGENTS: Mapping[str, Agent] = {agent.name: agent for agent in (CLAUDE, CODEX, GEMINI, COPILOT, OPENCODE)}
