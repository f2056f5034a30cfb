// A client of `@modelcontextprotocol/sdk` 1.x that can be asked, as asked_client.py. Arguments: where npm installed it,
// and the command of the server.
import { pathToFileURL } from "node:url";

const [packages, command, ...args] = process.argv.slice(2);
const module = (path) => import(pathToFileURL(`${packages}/node_modules/@modelcontextprotocol/sdk/dist/esm/${path}`));
const { Client } = await module("client/index.js");
const { StdioClientTransport } = await module("client/stdio.js");
const { CreateMessageRequestSchema, ElicitRequestSchema } = await module("types.js");
const client = new Client({ name: "peer", version: "1" }, { capabilities: { elicitation: {}, sampling: {} } });
client.setRequestHandler(ElicitRequestSchema, () => ({ action: "accept", content: { ok: true } }));
client.setRequestHandler(CreateMessageRequestSchema, () => (
  { role: "assistant", content: { type: "text", text: "yo" }, model: "m" }));
const transport = new StdioClientTransport({ command, args, stderr: "inherit" });
let version;
transport.setProtocolVersion = (negotiated) => { version = negotiated; };
await client.connect(transport);
const said = {};
for (const { name } of (await client.listTools()).tools) {
  said[name] = (await client.callTool({ name, arguments: {} })).content[0].text;
}
console.log(JSON.stringify({ version, said }));
await client.close();
