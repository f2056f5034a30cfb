"""The plugin that hands the events of OpenCode to licet's client, and does what the answer says.

OpenCode has no hooks as programs, and skips a plugin that throws at its start: so it does nothing there but return its
handlers. Before a call, everything but a clear answer is an exception, which refuses the call.
"""

import json
import re
from collections.abc import Sequence

from licet.hooks.limits import INSTALLED_SECONDS

MARK = "// Written by `licet hooks install`; `licet hooks remove` takes it away."
_WORDS = re.compile(r"^const CLIENT = (\[.*\])$", re.MULTILINE)

_TEXT = """{mark}
import {{ spawn }} from "node:child_process"

const CLIENT = {client}
const MILLISECONDS = {milliseconds}

const parents = new Map()
const agents = new Map()
let shell = process.env.SHELL ?? ""

function ask(event, payload, directory) {{
  return new Promise((resolve, reject) => {{
    const child = spawn(CLIENT[0], [...CLIENT.slice(1), "hook", "opencode", event], {{
      cwd: directory,
      stdio: ["pipe", "pipe", "pipe"],
    }})
    const out = [], errors = []
    const timer = setTimeout(() => {{
      child.kill("SIGKILL")
      reject(new Error("licet refuses this call: it did not answer in time"))
    }}, MILLISECONDS)
    child.stdout.on("data", (part) => out.push(part))
    child.stderr.on("data", (part) => errors.push(part))
    child.stdin.on("error", () => {{}})
    child.on("error", (why) => {{
      clearTimeout(timer)
      reject(new Error("licet refuses this call: its hook cannot be started: " + why.message))
    }})
    child.on("close", (code) => {{
      clearTimeout(timer)
      const said = Buffer.concat(errors).toString("utf8").trim()
      if (code !== 0) return reject(new Error(said || "licet refuses this call: its hook ended with " + code))
      try {{
        resolve(JSON.parse(Buffer.concat(out).toString("utf8")))
      }} catch {{
        reject(new Error("licet refuses this call: the answer of its hook cannot be read"))
      }}
    }})
    child.stdin.end(JSON.stringify({{ event, directory, ...payload }}))
  }})
}}

export const LicetHooks = async ({{ client, directory }}) => {{
  async function about(sessionID) {{
    if (!parents.has(sessionID)) {{
      try {{
        const found = await client.session.get({{ path: {{ id: sessionID }} }})
        if (found?.data?.id === sessionID) parents.set(sessionID, found.data.parentID ?? "")
      }} catch {{}}
    }}
    const parentID = parents.get(sessionID)
    const alone = parentID === "" // and not merely unknown: the prompt of a subagent is no word of the person
    const agent = agents.get(sessionID)
    return {{ sessionID, shell, alone, ...(parentID ? {{ parentID }} : {{}}), ...(agent ? {{ agent }} : {{}}) }}
  }}

  async function tell(event, payload) {{
    try {{
      await ask(event, payload, directory)
    }} catch {{}} // what is only told never stops the person
  }}

  return {{
    config: async (found) => {{
      if (typeof found?.shell === "string" && found.shell) shell = found.shell
    }},
    "tool.execute.before": async (input, output) => {{
      const who = await about(input.sessionID)
      const args = output.args ?? {{}}
      const answer = await ask(
        "tool.execute.before",
        {{ ...who, tool: input.tool, callID: input.callID, args }},
        directory,
      )
      if (answer?.decision === "none") return
      if (answer?.decision === "rewrite" && answer.args && typeof answer.args === "object") {{
        // A new object in `output.args` is ignored: the old one gets the new values.
        for (const name of Object.keys(output.args)) if (!(name in answer.args)) delete output.args[name]
        Object.assign(output.args, answer.args)
        return
      }}
      throw new Error(answer?.reason || "licet refuses this call")
    }},
    "tool.execute.after": async (input, output) => {{
      const who = await about(input.sessionID)
      const args = input.args ?? {{}}
      await tell("tool.execute.after", {{
        ...who, tool: input.tool, callID: input.callID, args, output: output?.output ?? null,
      }})
    }},
    "chat.message": async (input, output) => {{
      if (input.agent) agents.set(input.sessionID, input.agent)
      const who = await about(input.sessionID)
      const parts = (output?.parts ?? []).filter((part) => part.type === "text" && !part.synthetic)
      await tell("chat.message", {{ ...who, prompt: parts.map((part) => part.text).join("\\n") }})
    }},
    event: async ({{ event }}) => {{
      const info = event?.properties?.info
      if (event?.type !== "session.created" && event?.type !== "session.deleted") return
      if (!info?.id) return
      parents.set(info.id, info.parentID ?? "")
      const version = info.version ? {{ version: info.version }} : {{}}
      await tell(event.type, {{ ...(await about(info.id)), ...version }})
      if (event.type === "session.deleted") {{
        parents.delete(info.id)
        agents.delete(info.id)
      }}
    }},
  }}
}}
"""


def plugin_text(client: Sequence[str]) -> str:
    """The plugin, which starts the client with these words."""
    words = json.dumps(list(client))
    return _TEXT.format(mark=MARK, client=words, milliseconds=INSTALLED_SECONDS * 1000)


def plugin_words(text: str) -> tuple[str, ...]:
    """The words that start the client in a plugin that licet wrote; none for any other file."""
    if not text.startswith(MARK):
        return ()
    found = _WORDS.search(text)
    try:
        words = json.loads(found[1]) if found else []
    except ValueError:
        return ()
    return tuple(word for word in words if isinstance(word, str))
