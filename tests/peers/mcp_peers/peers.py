"""Public servers and official clients as data, and how a request is sent with each: directly, and through the gateway.

`LICET_PEERS_STORE` names a directory that stays between runs: packages of servers are installed there, and pinned.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from licet.packages.server_packages import Resolved, installed, launch_of
from pins import give_standing

HERE = Path(__file__).resolve().parent
TABLE: dict[str, Any] = yaml.safe_load((HERE / "peers.yaml").read_text(encoding="utf-8"))
SERVERS: dict[str, dict[str, Any]] = TABLE["servers"]
CLIENTS: dict[str, dict[str, Any]] = TABLE["clients"]
LICET = str(Path(sysconfig.get_path("scripts"), "licet"))
LISTS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
Answers = list[dict[str, Any]]
SECONDS = 300
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))


class Workspace:
    """A policy for one public server, its lock, and a work directory that can be made anew."""

    def __init__(self, name: str, root: Path, port: int = 0) -> None:
        self.name, self.about, self.port = name, SERVERS[name], port
        self.policy, self.work, self.home = root / "policy", root / "work", root / "home"
        self.store = Path(needed("LICET_PEERS_STORE"))
        given = {key: value.replace("${workdir}", str(self.work)) for key, value in self._get("environment").items()}
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "XDG_DATA_HOME": str(self.store),
            "XDG_STATE_HOME": str(root / "state"),
            **given,
        }
        self.policy.mkdir(parents=True)
        self.home.mkdir()
        self.fresh()
        self.write(self.manifest(self._entry()))

    def _get(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = self.about.get(key, {})
        return found

    # The policy -------------------------------------------------------------------------------------------------------

    def manifest(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """The policy that admits all of this server."""
        admitted = [tool for tools in self.about["tools"].values() for tool in tools]
        admitted += [kind for kind in ("resources", "prompts") if kind in self.about]
        grants = [rule for rule in self.about.get("grants", []) if not rule.startswith("fs:")]
        capabilities = {
            "tools": [f"{self.name}.{tool}" for tool in admitted],
            "max_side_effect_class": list(self.about["tools"])[-1],
            "fs_reach": {
                action: [
                    rule.removeprefix(f"fs:{action}:")
                    for rule in self.about.get("grants", [])
                    if rule.startswith(f"fs:{action}:")
                ]
                for action in ("read", "write")
            },
            "approvals": {"write": "manifest", "delete": "manifest"},
            "budget": {"max_calls_per_session": 1000},
            **({"grants": grants} if grants else {}),
            **self.about.get("capabilities", {}),
        }
        return {"agent": "peer", "servers": {self.name: entry}, "capabilities": capabilities}

    def _entry(self) -> dict[str, Any]:
        about = self.about
        tools = {tool: {"effect": effect} for effect, names in about["tools"].items() for tool in names}
        kept = ("command", "grants", "env", "secrets", "client", "limits", "resources", "prompts")
        return {**{key: about[key] for key in kept if key in about}, "tools": tools}

    def write(self, manifest: Mapping[str, Any]) -> None:
        text = json.dumps(manifest, indent=1)
        (self.policy / "agent.yaml").write_text(text, encoding="utf-8")

    def fresh(self) -> None:
        """Make the work directory anew, as the table describes it."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        for path, text in self.about.get("files", {}).items():
            (self.work / path).parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                (self.work / path).mkdir()
            else:
                (self.work / path).write_text(text, encoding="utf-8")
        for command in self.about.get("setup", []):
            environment = {**self.environment, **SETUP}
            subprocess.run(self._words(command), cwd=self.work, env=environment, check=True, capture_output=True)

    def _words(self, words: Sequence[str]) -> list[str]:
        return [word.replace("${workdir}", str(self.work)) for word in words]

    # The lock ---------------------------------------------------------------------------------------------------------

    def licet(self, *words: str) -> subprocess.CompletedProcess[str]:
        # Registries are set up in the environment and the home of this user.
        environment = {**os.environ, **self.environment, "HOME": str(Path.home())}
        return subprocess.run(
            [LICET, *words], cwd=self.work, env=environment, capture_output=True, text=True, timeout=SECONDS
        )

    def lock(self) -> None:
        """Lock the server as a user would, once in a run of tests. What an earlier run has pinned stays pinned."""
        kept, lock = self.store / "locks" / f"{self.name}.lock", self.policy / "licet.lock"
        kept.parent.mkdir(parents=True, exist_ok=True)
        with kept.with_suffix(".run").open("a+", encoding="utf-8") as run:
            fcntl.flock(run, fcntl.LOCK_EX)
            run.seek(0)
            if kept.exists():
                shutil.copy(kept, lock)
            if run.read() == RUN:
                return
            ran = self.licet("lock", "--update", str(self.policy / "agent.yaml"))
            assert ran.returncode == 0, ran.stdout + ran.stderr
            shutil.copy(lock, kept)
            run.truncate(0)
            run.write(RUN)

    @property
    def locked(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.policy / "licet.lock").read_bytes())["servers"][self.name]
        return found

    # Requests ---------------------------------------------------------------------------------------------------------

    @property
    def requests(self) -> list[tuple[str, dict[str, Any]]]:
        """Every list, and the requests of the table."""
        text = json.dumps(self.about["requests"]).replace("${workdir}", str(self.work))
        found = json.loads(text.replace("${port}", str(self.port)))
        return [*((method, {}) for method in self.about.get("lists", LISTS)), *((one[0], one[1]) for one in found)]

    def direct(self) -> list[str]:
        """The command that starts what the lock pins, without the gateway: a copy, since some servers change theirs."""
        launch = launch_of(self._words(self.about["command"]))
        packages = self.store / "licet" / "packages"
        found = installed(msgspec.convert(self.locked["resolved"], Resolved), packages)
        assert found is not None
        package, copy = found.readable[0], self.policy.with_name("copy")
        assert Path(package).is_relative_to(packages)
        if not copy.exists():
            shutil.copytree(package, copy, symlinks=True)
        return [*(word.replace(package, str(copy)) for word in found.argv), *launch.arguments]

    def gateway(self) -> list[str]:
        """The command of a gateway whose policy may delete, as a person has said at a terminal."""
        policy, state = self.policy / "agent.yaml", self.policy.with_name("state") / "gateway"
        deletes = [rule for rule in self.about.get("grants", []) if rule.startswith("fs:delete:")]
        if deletes and not state.exists():
            give_standing(policy, self._words(deletes), state)
        return [LICET, "gateway", str(policy), "--workdir", str(self.work), "--state", str(state)]

    def answers(self, client: str, command: Sequence[str]) -> Answers:
        """What a client is answered to all requests, by a server that this command starts."""
        self.fresh()
        if CLIENTS[client].get("inspector"):
            known = [request for request in self.requests if request[0] != "completion/complete"]
            return [inspector(self, command, *request) for request in known[: CLIENTS[client]["most"]]]
        about = CLIENTS[client]
        order = {
            "command": list(command),
            "directory": str(self.work),
            "environment": self.environment,
            "mode": about.get("mode", ""),
            "packages": os.environ.get("LICET_NPM", ""),
            "requests": self.requests,
        }
        if "python" in about:
            words = [needed(about["python"]), str(HERE / "python_client.py")]
        else:
            needed("LICET_NPM")
            words = ["node", str(HERE / "node_client.mjs")]
        ran = subprocess.run(
            words, input=json.dumps(order), capture_output=True, text=True, timeout=SECONDS, env=self.environment
        )
        assert ran.returncode == 0, f"{client}: {ran.stderr}"
        return [json.loads(line) for line in ran.stdout.splitlines()]


# Git asks who commits, and a commit has a time.
SETUP = {
    **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER")
       for what, value in (("NAME", "Ann"), ("EMAIL", "ann@example.com"), ("DATE", "2026-01-01T00:00:00Z"))},
}  # fmt: skip


def needed(variable: str) -> str:
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"{variable} is not set: make test-peers")
    return value


def inspector(workspace: Workspace, command: Sequence[str], method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """One request with the command line of the Inspector, which starts the server for it."""
    flags = {"tools/call": ("--tool-name", "--tool-arg"), "prompts/get": ("--prompt-name", "--prompt-args")}
    words = ["--method", method]
    if method == "resources/read":
        words += ["--uri", given["uri"]]
    if method in flags:
        name, argument = flags[method]
        words += [name, given["name"]]
        for key, value in given.get("arguments", {}).items():
            words += [argument, f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    program = f"{needed('LICET_NPM')}/node_modules/@modelcontextprotocol/inspector/cli/build/index.js"
    ran = subprocess.run(
        ["node", program, command[0], *words, "--", *command[1:]],
        cwd=workspace.work, env=workspace.environment, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    return {"result": json.loads(ran.stdout)} if ran.returncode == 0 else {"error": {"message": ran.stderr.strip()}}
