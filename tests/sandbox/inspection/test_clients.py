"""Real clients use keys that they never have, each in its own way: the rows of `clients.yaml`, behind real walls."""

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import Struct
from msgspec.structs import replace

from guard.grants import grant
from licet.core.policy import inspection
from licet.guard.execution import Command, TakesSecrets
from licet.sandbox import probe
from licet.sandbox.programs.runner import LocalProcesses
from licet.sandbox.programs.walls import ProgramWalls
from loopback import authority_file, talking
from sandbox.inspection.behind import HOST, PYTHON, SITE, Names
from sandbox.inspection.client_site import Site
from sandbox.inspection.test_trust import path_of

pytestmark = pytest.mark.skipif(not probe.support().namespaces, reason="user namespaces are not to be had here")
KEY = "".join(reversed("qLwEr0Ty6Ui3Op9As5Df1Gh7Jk4Nm2QvW8xZ_phg"))  # this file is not one that has it
UNDICI = "/usr/lib/node_modules/npm/node_modules/undici"
PRELUDE = (
    "import os\nTOKEN, URL, PLACE, HOME = (os.environ.get(name, '') for name in ('TOKEN', 'URL', 'PLACE', 'HOME'))\n"
)


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    """A client and its way of sending a key."""

    gets: str
    run: str = ""
    python: str = ""
    file: str = ""
    field: str = ""
    text: str = ""
    shows: str = ""
    pushes: bool = False
    undici: bool = False
    cargo: bool = False
    user: bool = False  # the key is the user of `Basic`


ROWS: Mapping[str, Row] = {
    name: Row(**row)
    for name, row in yaml.safe_load(Path(__file__).with_name("clients.yaml").read_text("utf-8")).items()
}


def missing(name: str, row: Row) -> bool:
    """Whether the client is not on this machine."""
    program = name.partition(",")[0].partition(" ")[0]
    if row.python or program == "pip":
        return False
    if row.undici and not os.path.isdir(UNDICI):
        return True
    return path_of(program) is None


def played(row: Row, folder: Path, *, inspected: bool = True) -> tuple[dict[str, Any], Site, str]:
    """What a client says, what the server was asked, and the stand-in."""
    home = folder.resolve() / "home"
    home.mkdir()
    (folder / "work").mkdir()
    site = Site(folder.resolve() / "site", KEY)
    with talking(site.talk, names=(HOST,)) as server:
        site.place = f"{HOST}:{server.port}"
        if row.file:
            (home / row.file).write_text(filled(row.text, site))
        return asyncio.run(_played(row, site, home, folder, inspected=inspected))


def filled(text: str, site: Site) -> str:
    return text.replace("PLACE", site.place).replace("KEY", KEY)


async def _played(
    row: Row, site: Site, home: Path, folder: Path, *, inspected: bool
) -> tuple[dict[str, Any], Site, str]:
    cargo = path_of("cargo") or "cargo"
    reads = [os.path.dirname(os.path.dirname(PYTHON)), SITE, os.path.dirname(__file__)]
    reads += [os.path.dirname(os.path.dirname(cargo))] if row.cargo else []
    rules = [
        f"network:https:{site.place}",
        "secret:read:met/token",
        "process:exec:*",
    ]
    # Where the key is in a file, that file alone is granted, and what clients write is elsewhere.
    work = folder.resolve() / "work" if row.file else home
    rules += [f"fs:{action}:{work}" for action in ("read", "write", "delete")]
    rules += [f"fs:read:{path}" for path in (*reads, *([f"{home}/{row.file}"] if row.file else []))] + [
        f"network:tcp:{site.place}"
    ] * (not inspected)
    held = grant(rules, effect="destructive", private=["127.0.0.0/8"])
    stated: dict[str, Any] = {
        "hosts": [site.place],
        "headers": ["x-api-key"],
        "body": ["client_secret", "/inner/0/client_secret"],
    }
    stated["headers"] += ["authorization"] if row.cargo else []
    stated["headers"] += ["authorization: Basic {key}:"] if row.user else []
    stated |= {"file": f"{home}/{row.file}", "field": filled(row.field, site)} if row.file else {"secret": "met/token"}
    values = {"inspect": (site.place,), "stand_ins": inspection.stand_ins({"TOKEN": stated})} if inspected else {}
    manifest = held.reach.manifest
    held.reach = replace(held.reach, manifest=replace(manifest, values={**manifest.values, **values}))
    walls = ProgramWalls(Names(ca_file=authority_file(folder))).walls(held)
    token = KEY
    if inspected:
        assert isinstance(walls, TakesSecrets)
        await walls.take_secrets(_value)
        keys = walls._inspecting.keys  # type: ignore[attr-defined]
        token = keys.environment.get("TOKEN") or _stand_in(row, keys.files, site)
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "WORK": str(work),
        "npm_config_cache": f"{work}/.npm",
        "URL": f"https://{site.place}",
        "PLACE": site.place,
        "PYTHON": PYTHON,
        "PYTHONPATH": SITE,
        "CARGO": cargo,
        "UNDICI": UNDICI,
        "PIP_CONFIG_FILE": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
    } | (
        {}
        if inspected
        else {"TOKEN": KEY, "SSL_CERT_FILE": authority_file(home), "CURL_CA_BUNDLE": authority_file(home)}
    )
    command = [PYTHON, "-c", PRELUDE + row.python] if row.python else ["/bin/sh", "-c", row.run]
    search = os.path.join(os.path.dirname(__file__), "key_search.py")
    words = (PYTHON, "-I", search, environment["URL"], KEY[::-1], token, str(work), "/tmp", json.dumps(command))
    processes = LocalProcesses("/usr/bin:/bin")
    binary = processes.find(PYTHON)
    assert binary is not None
    ended = await processes.run(Command(binary, words, environment, str(work), b"", 120.0, 1 << 20), walls)
    try:
        return json.loads(ended.stdout), site, token
    except ValueError:
        raise AssertionError(ended.stdout + ended.stderr) from None


def _stand_in(row: Row, files: Mapping[str, bytes], site: Site) -> str:
    ((_, copy),) = files.items()
    before, _, after = filled(row.text, site).partition(KEY)
    return copy.decode().removeprefix(before).removesuffix(after)


async def _value(reference: str) -> str:
    assert reference == "met/token"
    return KEY


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ROWS)
def test_a_client_uses_a_key_that_it_never_has(name: str, tmp_path: Path) -> None:
    row = ROWS[name]
    if missing(name, row):
        pytest.skip("there is no such client here")
    said, site, stand_in = played(row, tmp_path)
    texts = [asked.text for asked in site.seen]
    assert any(filled(row.gets, site) in text for text in texts), (said, texts)
    assert not any(stand_in in text for text in texts), texts
    assert said["code"] == 0, said
    assert said["key"] == said["key_after"] == [], said
    assert KEY not in said["out"]
    assert {"memory", "file"} & {*said["stand_in"]}, said  # so that the search is one
    assert stand_in in said["out"]
    assert row.shows in said["out"]
    assert site.pushed == (2 if row.pushes else 1)


def test_the_search_finds_a_key_that_a_program_has(tmp_path: Path) -> None:
    name = "curl, a bearer token"
    if missing(name, ROWS[name]):
        pytest.skip("there is no such client here")
    said, _, _ = played(ROWS[name], tmp_path, inspected=False)
    assert said["key"] == ["cmdline", "environ", "memory"], said
    assert KEY in said["out"]
