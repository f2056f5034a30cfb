// Sends requests with a client of npm, `@modelcontextprotocol/sdk` 1.x or `@modelcontextprotocol/client` 2.x, and
// prints the answers. Standard input is as in python_client.py, with `packages`: where npm installed them.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

console.log = console.info = console.debug = console.error; // standard output has answers alone
const order = JSON.parse(readFileSync(0, "utf8"));
const module = (path) => import(pathToFileURL(`${order.packages}/node_modules/@modelcontextprotocol/${path}`));
const about = { name: "peer", version: "1" };
const [{ Client }, { StdioClientTransport }] = order.mode
  ? [await module("client/dist/index.mjs"), await module("client/dist/stdio.mjs")]
  : [await module("sdk/dist/esm/client/index.js"), await module("sdk/dist/esm/client/stdio.js")];
const client = new Client(about, order.mode ? { versionNegotiation: { mode: order.mode } } : {});
const [command, ...args] = order.command;
const options = { command, args, cwd: order.directory, env: order.environment, stderr: "inherit" };
const transport = new StdioClientTransport(options);
let version;
transport.setProtocolVersion = (negotiated) => { version = negotiated; };
await client.connect(transport);
const instructions = client.getInstructions() ?? null;
print({ version: client.getNegotiatedProtocolVersion?.() ?? version, instructions });

const LISTS = {
  "tools/list": ["listTools", "tools"],
  "resources/list": ["listResources", "resources"],
  "resources/templates/list": ["listResourceTemplates", "resourceTemplates"],
  "prompts/list": ["listPrompts", "prompts"],
};
const METHODS = { "tools/call": "callTool", "resources/read": "readResource", "prompts/get": "getPrompt",
  "completion/complete": "complete" };

async function answer(method, given) {
  if (!(method in LISTS)) return client[METHODS[method]](given);
  const [name, key] = LISTS[method];
  let found = await client[name]();
  while (found.nextCursor) {
    const more = await client[name]({ cursor: found.nextCursor });
    found = { ...more, [key]: [...found[key], ...more[key]] };
  }
  return found;
}

for (const [method, given] of order.requests) {
  try {
    print({ result: await answer(method, given) });
  } catch (error) {
    if (error.code === undefined) print({ client: error.message });
    else print({ error: { code: error.code, message: error.message } });
  }
}
await client.close();

function print(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}
