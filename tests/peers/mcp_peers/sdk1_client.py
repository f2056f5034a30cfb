"""Tells one story with the client of `mcp` 1.x, and prints what it saw. Run with the Python that has that package."""

import asyncio
import json
import sys
from datetime import timedelta
from typing import Any

from mcp import ClientSession, McpError, StdioServerParameters, types  # type: ignore[import-not-found,unused-ignore]
from mcp.client.stdio import stdio_client  # type: ignore[import-not-found,unused-ignore]

seen: dict[str, Any] = {"progress": [], "log": [], "told": []}


async def elicit(context: Any, params: Any) -> Any:
    return types.ElicitResult(action="accept", content={"ok": True})


async def sample(context: Any, params: Any) -> Any:
    return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text="yo"), model="m")


async def roots(context: Any) -> Any:
    return types.ListRootsResult(roots=[types.Root(uri="file:///srv")])


async def log(params: Any) -> None:
    seen["log"].append(params.level)


async def message(note: Any) -> None:
    if isinstance(note, types.ServerNotification):
        seen["told"].append(note.root.method)


async def progress(done: float, total: float | None, text: str | None) -> None:
    seen["progress"].append([done, total, text])


async def main() -> None:
    command, *arguments = sys.argv[1:]
    async with stdio_client(StdioServerParameters(command=command, args=arguments)) as streams:
        callbacks = {"elicitation_callback": elicit, "sampling_callback": sample, "list_roots_callback": roots}
        async with ClientSession(*streams, logging_callback=log, message_handler=message, **callbacks) as client:
            opened = await client.initialize()
            seen["version"] = opened.protocolVersion
            seen["server"] = opened.serverInfo.name
            seen["instructions"] = opened.instructions
            page = await client.list_tools()
            seen["pages"] = [len(page.tools)]
            while page.nextCursor:
                page = await client.list_tools(params=types.PaginatedRequestParams(cursor=page.nextCursor))
                seen["pages"].append(len(page.tools))
            await tell(client)
    print(json.dumps(seen))


async def call(client: Any, name: str, arguments: Any = None, **more: Any) -> Any:
    result = await client.call_tool(name, arguments, **more)
    return [result.isError, result.content[0].text, result.structuredContent]


async def tell(client: Any) -> None:
    seen["echo"] = await call(client, "echo", {"a": 1})
    seen["no arguments"] = await call(client, "echo")
    seen["sum"] = await call(client, "sum", {})
    seen["refused sum"] = await call(client, "sum", {"refuse": True})
    seen["refused"] = await call(client, "refuse", {})
    seen["unknown"] = await call(client, "nothing", {})
    steps = {"progress": [{"progress": 0.5, "total": 1.0, "message": "half"}]}
    await call(client, "tell", steps, progress_callback=progress)
    await client.set_logging_level("warning")
    await call(client, "tell", {"log": [{"level": level, "data": 1} for level in ("info", "warning", "error")]})
    seen["asked"] = await call(client, "ask", {"questions": ["form", "sampling", "roots"]})
    seen["asked at once"] = await call(client, "ask_two", {"questions": ["form", "roots"]})
    seen["resources"] = [str(item.uri) for item in (await client.list_resources()).resources]
    seen["templates"] = [item.uriTemplate for item in (await client.list_resource_templates()).resourceTemplates]
    seen["read"] = (await client.read_resource("a://doc")).contents[0].text
    try:
        await client.read_resource("a://secret")
    except McpError as error:
        seen["read refused"] = [error.error.code, error.error.message, error.error.data]
    seen["prompts"] = [item.name for item in (await client.list_prompts()).prompts]
    seen["prompt"] = (await client.get_prompt("draft")).description
    ref = types.PromptReference(type="ref/prompt", name="draft")
    seen["completion"] = (await client.complete(ref, {"name": "x", "value": "a"})).completion.values
    try:
        await client.call_tool("hang", {}, read_timeout_seconds=timedelta(seconds=0.2))
    except McpError:
        seen["after a timeout"] = await call(client, "echo", {})
    await client.send_ping()
    await client.send_roots_list_changed()
    await client.subscribe_resource("a://doc")
    seen["told"].clear()
    await call(client, "poke", {})
    seen["many"] = len(await asyncio.gather(*(call(client, "echo", {"n": n}) for n in range(50))))


asyncio.run(main())
