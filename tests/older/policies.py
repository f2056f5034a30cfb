"""The policies of the desk, as a version wrote them."""
# ruff: noqa: E501 - lines of policies, not of code

from pathlib import Path

DESK = """\
agent: desk
capabilities:
  tools:
    look: {}
    pay: {max_calls: 3, max_cost_usd: 2}
    note: {}
    jot: {approval: session}
    count: {}
    fail: {}
  native: [look, pay, note, jot, count, fail]
  max_side_effect_class: write_limited
  fs_reach: {read: [/srv/notes], write: [/srv/notes/out]}
  approvals: {write: call, expires_seconds: 86400}
  budget: {max_calls_per_session: 40, max_calls_per_day: 60, max_cost_usd: 3, max_cost_usd_per_day: 5}
  record: full
"""
SIGNED = """\
agent: signer
capabilities:
  tools: [note]
  native: [note]
  max_side_effect_class: write_limited
  fs_reach: {write: [/srv/notes/out]}
  approvals:
    write: call
    expires_seconds: 86400
    quorum: 2
    keys: {alice: ALICE, bob: BOB}
"""
MAIL = """\
agent: assistant
flow: {preset: rule_of_two}
capabilities:
  tools: [read_mail, send_mail]
  native: [read_mail, send_mail]
  max_side_effect_class: write_limited
  fs_reach: {read: ["${workdir}/inbox"], write: ["${workdir}/outbox"]}
  approvals: {expires_seconds: 86400}
"""
WORKSPACE = """\
licet: 1
tools:
  archive: {needs: ["fs:read:${workdir}"], optional: ["env:read:LANG"], effect: read_only, sandbox: restricted, cost_usd: 0.25}
  report: {from: "reports:report"}
  release: {needs: ["network:https:post@api.github.com"], effect: full, sandbox: isolated, connector: github@2.1, cost_usd: 0.1}
servers:
  files:
    command: [python3, server.py, "${workdir}/notes"]
    code: ["${workdir}/served"]
    grants: ["fs:read:${workdir}/notes", "env:read:LANG"]
    env: [LANG]
    secrets: {FILES_KEY: files/key, GITHUB_TOKEN: {secret: github/token, hosts: [api.github.com], headers: [x-api-key], body: [token]}}
    inspect: [api.github.com]
    tools:
      read:
        needs: ["fs:read:${workdir}/notes"]
        optional: ["env:read:LANG"]
        effect: read_only
        args: {path: {scope: "fs:read"}, mode: {enum: [text], ask: {const: raw}}, about: free}
        asked_by: {en: [read, open], de: [lies]}
        approval: call
        limits: LIMITS
        cost_usd: 0.10
        hidden: show
      "*": {effect: read_only}
    resources: ["file:///srv/data"]
    prompts: [summary]
    client: {sampling: ask, elicitation: allow, roots: ["${workdir}"], logging: true, max_asks: 3}
    limits: {memory_mb: 256}
    sandbox: isolated
  remote:
    url: https://mcp.example.com/mcp
    headers: {Authorization: remote/token}
    connector: github
    tools: {search: {effect: read_only, asked_by: [search]}}
    resources: "*"
    prompts: "*"
gateway: {names: prefixed}
bundles:
  forge:
    tools: [release]
    sandbox: isolated
    side_effect_class: full
    destinations: [api.github.com]
    limits: LIMITS
    budget: {max_calls_per_session: 5, max_calls_per_day: 20, max_cost_usd: 1, max_cost_usd_per_day: 2.5}
    approvals:
      {write: call, delete: call, expires_seconds: 600, quorum: 2, through_client: false, keys: [ALICE, BOB]}
    connectors: [{connector: github, version: ">=2.0"}]
    private: [10.0.0.0/8]
    inspect: [api.github.com]
    stand_ins:
      GITHUB_TOKEN: {secret: github/token, hosts: [api.github.com], headers: [x-api-key], body: [token]}
      FILE_KEY: {file: "/srv/keys/netrc.json", field: "machine key", hosts: [api.github.com]}
connectors:
  tenant_allowlist: [{connector: github, version: ">=2.0"}, jira]
  definitions:
    github:
      hosts: [api.github.com]
      secrets: [github/*, remote/token]
      side_effect_class: full
      version: "2.1"
    slack: {hosts: [slack.com], secrets: [], side_effect_class: read_only, version: ">=2", distribution: slack-sdk}
  app_overrides: {desk-app: {allow: [github], deny: [jira]}, other-app: {}}
destinations: {allow: ["*.github.com", mcp.example.com], deny: ["*.production.internal"], default: deny}
"""
EVERY = """\
licet: 1
agent: every
version: "1.0"
app: desk-app
capabilities:
  bundles: [forge]
  tools:
    archive:
      sandbox: restricted
      side_effect_class: read_only
      args: {path: {scope: "fs:read"}, to: {flow: to, always: true}, of: {flow: ref, of: ["archive:id"]}, by: {from: [task]}, about: free}
      asked_by: [archiv]
      approval: session
      max_calls: 3
      max_cost_usd: 1
      limits: LIMITS
    release: {args: {body: {flow: content}}}
    files.read: {}
  max_side_effect_class: full
  destinations: {allow: [api.github.com], deny: [gist.github.com], default: deny}
  private: [10.0.0.0/8]
  fs_reach: {read: ["${workdir}", "~/notes", /srv/keys], write: ["${workdir}/out"]}
  env: [LANG]
  secrets: [github/*, files/key]
  process: {allowed_binaries: [git, /usr/bin/grep]}
  storage: [tool-private, session, personality]
  connectors: [{connector: github, version: ">=2.0"}]
  grants: ["network:tcp:db.github.com:5432"]
  deny: ["fs:write:${workdir}/out/keep", "tool:call:other"]
  inspect: [api.github.com]
  stand_ins:
    GITHUB_TOKEN: {secret: github/token, hosts: [api.github.com], headers: [x-api-key], body: [token]}
    FILE_KEY: {file: "/srv/keys/netrc.json", field: "machine key", hosts: [api.github.com]}
  native: [archive]
  approvals:
    {write: session, delete: manifest, expires_seconds: 600, quorum: 1, through_client: true, keys: {alice: ALICE, bob: BOB}}
  budget: {max_calls_per_session: 100, max_calls_per_day: 1000, max_cost_usd: 5, max_cost_usd_per_day: 20}
  limits: {wall_seconds: 30, memory_mb: 512}
  sandbox: {allow_degraded: true}
  record: full
flow:
  preset: guarded
  otherwise: deny
  own: [example.com]
  results: {archive: {id: trusted, title: identity}, release: ack}
  sources: [{use: "fs:read:/srv/policies", label: authored}]
  secrets:
    - {from: {tool: archive, fields: [passport]}, readers: []}
    - {from: "fs:read:/srv/hr", readers: ["network:write:api.github.com"]}
  task: prompt
  task_through_client: false
examples:
  match: [{tool: archive, use: "read ${workdir}/a"}]
  no_match: [{tool: archive, use: "write /etc/passwd"}]
"""
LIMITS = (
    "{wall_seconds: 30, cpu_seconds: 10, memory_mb: 512, output_kb: 64, open_files: 64, processes: 8, file_mb: 16, "
    "scratch_mb: 64, host_memory_mb: 512, host_files: 64, waiting_kb: 64, request_headers: 32, fuel: 1000000}"
)
BROAD = """\
licet: 1
id: broad
bundles: [forge]
tools:
  archive:
    sandbox: restricted
    side_effect_class: read_only
    args: {path: {scope: "fs:read"}}
    asked_by: [archiv]
    approval: session
    max_calls: 3
    max_cost_usd: 1
    limits: LIMITS
max_side_effect_class: full
destinations: {allow: [api.github.com], deny: [gist.github.com], default: deny}
private: [10.0.0.0/8]
fs_reach: {read: ["${workdir}"], write: ["${workdir}/out"]}
env: [LANG]
secrets: [github/*]
process: {allowed_binaries: [git]}
storage: [personality]
connectors: [{connector: github, version: ">=2.0"}]
grants: ["network:tcp:db.github.com:5432"]
deny: ["fs:write:${workdir}/out/keep"]
inspect: [api.github.com]
stand_ins:
  GITHUB_TOKEN: {secret: github/token, hosts: [api.github.com], headers: [x-api-key], body: [token]}
  FILE_KEY: {file: "/srv/keys/netrc.json", field: "machine key", hosts: [api.github.com]}
native: [other]
approvals: {write: session, delete: call, expires_seconds: 600, quorum: 1, through_client: true, keys: {alice: ALICE, bob: BOB}}
budget: {max_calls_per_session: 100, max_calls_per_day: 1000, max_cost_usd: 5, max_cost_usd_per_day: 20}
limits: {wall_seconds: 30, memory_mb: 512}
sandbox: {allow_degraded: true}
record: full
flow:
  preset: watch
  otherwise: ask
  own: [example.com]
  results: {archive: {id: trusted}}
  sources: [{use: "fs:read:/srv/policies", label: authored}]
  secrets: [{from: "fs:read:/srv/hr", readers: []}]
  task: host
  task_through_client: false
"""
PERSONALITY = """\
licet: 1
id: careful
toolset: [archive]
safety: {network: {allow: [api.github.com], deny: [gist.github.com]}}
fs_reach: {read: ["${workdir}"]}
max_side_effect_class: read_only
"""
ORGANISATION = """\
licet: 1
destinations: {allow: ["*.github.com"], deny: [gist.github.com], default: deny}
inspect: [api.github.com]
connectors: {allow: [github, {connector: slack, version: ">=2"}], deny: [jira]}
max_side_effect_class: full
approvals:
  {write: call, delete: call, expires_seconds: 600, quorum: 2, through_client: false, keys: {alice: ALICE, bob: BOB}}
budget: {max_calls_per_session: 100, max_calls_per_day: 1000, max_cost_usd: 5, max_cost_usd_per_day: 20}
flow:
  preset: guarded
  otherwise: deny
  own: [example.com]
  results: {archive: {id: trusted}}
  sources: [{use: "fs:read:/srv/policies", label: authored}]
  secrets: [{from: "fs:read:/srv/hr", readers: []}]
  task: host
  task_through_client: false
"""
CODE = '''\
"""The tool that the workspace names."""

from licet import tool


@tool(needs=[], effect="read_only", sandbox="restricted", connector="github@2.1")
def report(about: str) -> str:
    """Report."""
    return about
'''
LOCKED = """\
agent: locked
version: "1.2"
tools: {report: {from: "reports:report"}}
servers:
  weather:
    command: [python3, server.py]
    grants: ["fs:read:${workdir}"]
    tools: {"*": {effect: read_only}}
capabilities:
  tools: [report, weather.today]
  connectors: [github]
  fs_reach: {read: ["${workdir}"]}
connectors: {tenant_allowlist: [github]}
"""
SERVER = '''\
"""A server of the eras before and after 2026, which offers one of everything."""

import json
import sys

SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "minLength": 1},
          "days": {"type": "number", "minimum": 0.5, "maximum": 14, "title": "Days"}}, "required": ["city"]}
TOOL = {"name": "today", "description": "Today.", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}
INFO = {"serverInfo": {"name": "weather", "version": "1.0"}, "capabilities": {"tools": {}, "prompts": {}, "resources": {}}}
LISTS = {
    "tools/list": {"tools": [TOOL]},
    "prompts/list": {"prompts": [{"name": "summary", "description": "A summary."}]},
    "resources/list": {"resources": [{"uri": "file:///srv/data/a", "name": "a"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "file:///srv/data/{name}", "name": "any"}]},
}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    method, answer = asked["method"], {"jsonrpc": "2.0", "id": asked["id"]}
    if method == "initialize":
        answer["result"] = {"protocolVersion": "2025-11-25", "instructions": "Ask for a city.", **INFO}
    elif method in LISTS:
        answer["result"] = LISTS[method]
    elif method == "tools/call":
        answer["result"] = {"content": [{"type": "text", "text": "Rain."}]}
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(answer), flush=True)
'''
FILES = {
    "desk.yaml": DESK,
    "signed.yaml": SIGNED,
    "mail.yaml": MAIL,
    "every/licet.yaml": WORKSPACE,
    "every/agent.yaml": EVERY,
    "every/personality.yaml": PERSONALITY,
    "every/broad.yaml": BROAD,
    "every/organisation.yaml": ORGANISATION,
    "every/reports.py": CODE,
    "locked/agent.yaml": LOCKED,
    "locked/reports.py": CODE,
    "locked/server.py": SERVER,
}


def write_policies(folder: Path, alice: str, bob: str) -> None:
    """Write them, with the public keys of two approvers."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        for word, value in {"LIMITS": LIMITS, "ALICE": f'"{alice}"', "BOB": f'"{bob}"'}.items():
            text = text.replace(word, value)
        (folder / name).write_text(text)
