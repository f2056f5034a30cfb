"""Public servers give official clients the same answers with and without the gateway, but for the listed exceptions."""

import json
import os
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from licet.gateway.catalog import told_by
from licet.sandbox import probe

from .peers import CLIENTS, LISTS, SERVERS, TABLE, Workspace, needed

pytestmark = pytest.mark.skipif("LICET_PEERS_STORE" not in os.environ, reason="asks registries: make test-peers")

NAMED = TABLE["exceptions"]["named"]
WRAPPING = ("_meta", "ttlMs", "cacheScope", "resultType", "nextCursor")


PAGE = b"<html><head><title>T</title></head><body><h1>Toys</h1><p>A <a href='/b'>bear</a> and a kite.</p></body></html>"


class Web(BaseHTTPRequestHandler):
    """One page, and no robots.txt."""

    def do_GET(self) -> None:
        found = self.path == "/page.html"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE) if found else 0))
        self.end_headers()
        self.wfile.write(PAGE if found else b"")

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a web server on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Web) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def clients_of(name: str) -> list[str]:
    """The clients that a server is tried with: one of each era, or all."""
    return list(CLIENTS) if SERVERS[name].get("clients") == "all" else TABLE["usual_clients"]


def normal(method: str, answer: dict[str, Any], varying: dict[str, str]) -> Any:
    """An answer without what is excepted for all servers, and without what differs from run to run."""
    text = json.dumps(answer)
    for pattern, same in varying.items():
        text = re.sub(pattern, same, text)
    found = json.loads(text)
    if "result" not in found:
        return {} if method in LISTS and "-32601" in str(found) else found
    result = {key: value for key, value in found["result"].items() if key not in WRAPPING}
    if method in LISTS:
        (items,) = result.values()
        return {_name(item): {key: item[key] for key in item.keys() - {"_meta", "execution"}} for item in items}
    return {"isError": False, **result} if method == "tools/call" else result


def _name(item: dict[str, Any]) -> str:
    return str(item.get("uri") or item.get("uriTemplate") or item["name"])


def text_of(answer: dict[str, Any]) -> str:
    if "result" not in answer:
        return str(answer.get("error", answer).get("message"))
    return "".join(str(part.get("text", "")) for part in answer["result"].get("content", ()))


def differences(workspace: Workspace, client: str) -> list[str]:
    """The requests that are answered in another way through the gateway, and are not excepted."""
    direct, through = (workspace.answers(client, command) for command in (workspace.direct(), workspace.gateway()))
    found = []
    if not CLIENTS[client].get("inspector"):
        opened = direct.pop(0), through.pop(0)
        texts = [one["instructions"] for one in opened]
        if (told_by(workspace.name, texts[0]) if texts[0] else texts[0]) != texts[1]:
            found.append(f"{client}: instructions\n  direct  {texts[0]}\n  gateway {texts[1]}")
        assert len(direct) == len(through) == len(workspace.requests)
    marks = [""] * (len(workspace.requests) - len(workspace.about["requests"]))
    marks += [request[2] if len(request) > 2 else "" for request in workspace.about["requests"]]
    varying = {re.escape(str(workspace.work)): "/work", **workspace.about.get("varying", {})}
    for (method, given), mark, *answers in zip(workspace.requests, marks, direct, through, strict=False):
        one, other = (normal(method, answer, varying) for answer in answers)
        if method == "tools/list" and one.keys() != {tool["name"] for tool in workspace.locked["tools"]}:
            found.append(f"{client}: the server alone lists {sorted(one)}")
        excepted = bool(mark) and re.search(NAMED[mark]["gateway"], text_of(answers[1])) is not None
        if (one == other) == bool(mark) or excepted != bool(mark):
            if method in LISTS:
                names = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
                one, other = ({name: known.get(name) for name in names} for known in (one, other))
            found.append(f"{client}: {method} {json.dumps(given)} {mark}\n  direct  {one}\n  gateway {other}")
    return found


@pytest.mark.parametrize(("name", "client"), [(name, client) for name in SERVERS for client in clients_of(name)])
def test_a_public_server_answers_as_without_the_gateway(name: str, client: str, tmp_path: Path, port: int) -> None:
    if SERVERS[name]["command"][0] == "npx" or SERVERS[name].get("needs_node"):
        needed("LICET_NPM")
    if not probe.support().namespaces:
        pytest.skip("servers are refused without namespaces")
    workspace = Workspace(name, tmp_path, port)
    workspace.lock()
    locked = workspace.locked
    assert SERVERS[name]["era"] == ("2026" if locked["version"] >= "2026" else "2025")
    listed = sorted(tool for tools in SERVERS[name]["tools"].values() for tool in tools)
    assert sorted(tool["name"] for tool in locked["tools"]) == listed
    found = differences(workspace, client)
    assert not found, "\n".join(found)
