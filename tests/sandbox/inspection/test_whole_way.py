"""From a policy to a server: a program uses keys that it never has, through its walls and the proxy, with no fakes."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from guard.grants import grant
from licet.backends.http import HttpClient
from licet.backends.memory import Answer
from licet.core.policy.inspection import StandIn
from licet.guard.execution import Command, TakesSecrets
from licet.sandbox import probe
from licet.sandbox.programs.runner import LocalProcesses
from licet.sandbox.programs.walls import ProgramWalls
from loopback import authority_file, serving

pytestmark = [
    pytest.mark.skipif(not probe.support().namespaces, reason="user namespaces are not to be had here"),
    pytest.mark.skipif(shutil.which("curl", path="/usr/bin:/bin") is None, reason="there is no curl here"),
]
HOST = "met.test"
REAL, IN_FILE = "ghp_" + "Ab3" * 12, "npm_" + "Cd4" * 12
SCRIPT = """
curl -sS -H "Authorization: Bearer $TOKEN" {url}variable
curl -sS -H "Authorization: Bearer $(sed -n 's/.*_authToken=//p' {file})" {url}file
echo; env; cat {file}
"""


class Names(HttpClient):
    """The network of this machine, where one more name leads to loopback."""

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        return ("127.0.0.1",) if host == HOST else tuple(await super().resolve(host, port))


@pytest.mark.who
def test_keys_arrive_that_the_program_never_has(tmp_path: Path) -> None:
    file = tmp_path.resolve() / "home" / ".npmrc"
    file.parent.mkdir()
    file.write_text(f"//{HOST}/:_authToken={IN_FILE}\n")

    def site(exchange: Any) -> Answer:
        return Answer(200, (), b"thank you for " + dict(exchange.headers)["authorization"].encode())

    async def value(reference: str) -> str:
        assert reference == "github/token"
        return REAL

    async def run(port: int) -> str:
        place = f"{HOST}:{port}"
        rules = [f"network:https:get@{place}", f"fs:read:{file}", "secret:read:github/token", "process:exec:*"]
        held = grant(rules, private=["127.0.0.0/8"])
        entries = (
            StandIn(name="TOKEN", secret="github/token", hosts=(place,)),
            StandIn(name="npm", file=str(file), field=f"//{HOST}/:_authToken", hosts=(place,)),
        )
        values = {**held.reach.manifest.values, "inspect": (place,), "stand_ins": entries}
        held.reach = replace(held.reach, manifest=replace(held.reach.manifest, values=values))
        walls = ProgramWalls(Names(ca_file=authority_file(tmp_path))).walls(held)
        assert isinstance(walls, TakesSecrets)
        await walls.take_secrets(value)
        processes = LocalProcesses("/usr/bin:/bin")
        shell = processes.find("sh")
        assert shell is not None
        script = SCRIPT.format(url=f"https://{place}/", file=file)
        command = Command(shell, ("sh", "-c", script), {"PATH": "/usr/bin:/bin"}, "/", b"", 60.0, 1 << 20)
        ended = await processes.run(command, walls)
        return ended.stdout + ended.stderr

    with serving(site, names=(HOST,)) as server:
        said = asyncio.run(run(server.port))
        sent = [dict(exchange.headers)["authorization"] for exchange in server.seen]
    assert sent == [f"Bearer {REAL}", f"Bearer {IN_FILE}"], said
    assert said.count("thank you for Bearer ") == 2
    assert REAL not in said
    assert IN_FILE not in said
