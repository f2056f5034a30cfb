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
