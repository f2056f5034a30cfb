"""Tells one story with the client of `mcp` 2.x, and prints what it saw. Run with the Python that has that package."""

import asyncio
import json
import sys
import warnings
from typing import Any

import mcp_types as types  # type: ignore[import-not-found,unused-ignore]
from mcp import Client, MCPError, StdioServerParameters  # type: ignore[import-not-found,unused-ignore]

warnings.simplefilter("ignore")  # methods of older versions are deprecated
seen: dict[str, Any] = {"progress": [], "log": [], "told": []}


async def elicit(context: Any, params: Any) -> Any:
    return types.ElicitResult(action="accept", content={"ok": True})


async def sample(context: Any, params: Any) -> Any:
    return types.CreateMessageResult(role="assistant", content=types.TextContent(text="yo"), model="m")


async def roots(context: Any) -> Any:
    return types.ListRootsResult(roots=[types.Root(uri="file:///srv")])


async def log(params: Any) -> None:
    seen["log"].append(params.level)


async def message(note: Any) -> None:
    if hasattr(note, "method"):
        seen["told"].append(note.method)


async def progress(done: float, total: float | None, text: str | None) -> None:
    seen["progress"].append([done, total, text])


async def main() -> None:
    mode, command, *arguments = sys.argv[1:]
    callbacks = {"elicitation_callback": elicit, "sampling_callback": sample, "list_roots_callback": roots}
    server = StdioServerParameters(command=command, args=arguments)
    async with Client(
        server, mode=mode, logging_callback=log, log_level="warning", message_handler=message, **callbacks
    ) as client:
        seen["version"] = client.protocol_version
        seen["server"] = client.server_info.name if client.server_info else None
        seen["instructions"] = client.instructions
        page = await client.list_tools()
        seen["pages"] = [len(page.tools)]
        while page.next_cursor:
            page = await client.list_tools(cursor=page.next_cursor)
            seen["pages"].append(len(page.tools))
        await tell(client)
    print(json.dumps(seen))


async def call(client: Any, name: str, arguments: Any = None, **more: Any) -> Any:
    result = await client.call_tool(name, arguments, **more)
    return [bool(result.is_error), result.content[0].text, result.structured_content]


async def tell(client: Any) -> None:
    modern = client.protocol_version == "2026-07-28"
    seen["echo"] = await call(client, "echo", {"a": 1})
    seen["no arguments"] = await call(client, "echo")
    seen["sum"] = await call(client, "sum", {})
    seen["refused sum"] = await call(client, "sum", {"refuse": True})
    seen["refused"] = await call(client, "refuse", {})
    seen["unknown"] = await call(client, "nothing", {})
    steps = {"progress": [{"progress": 0.5, "total": 1.0, "message": "half"}]}
    await call(client, "tell", steps, progress_callback=progress)
    if not modern:
        await client.set_logging_level("warning")
    await call(client, "tell", {"log": [{"level": level, "data": 1} for level in ("info", "warning", "error")]})
    seen["asked"] = await call(client, "ask", {"questions": ["form", "sampling", "roots"]})
    seen["asked at once"] = await call(client, "ask_two", {"questions": ["form", "roots"]})
    seen["resources"] = [item.uri for item in (await client.list_resources()).resources]
    seen["templates"] = [item.uri_template for item in (await client.list_resource_templates()).resource_templates]
    seen["read"] = (await client.read_resource("a://doc")).contents[0].text
    try:
        await client.read_resource("a://secret")
    except MCPError as error:
        seen["read refused"] = [error.error.code, error.error.message, error.error.data]
    seen["prompts"] = [item.name for item in (await client.list_prompts()).prompts]
    seen["prompt"] = (await client.get_prompt("draft")).description
    ref = types.PromptReference(name="draft")
    seen["completion"] = (await client.complete(ref, {"name": "x", "value": "a"})).completion.values
    try:
        await client.call_tool("hang", {}, read_timeout_seconds=0.2)
    except (MCPError, TimeoutError):
        seen["after a timeout"] = await call(client, "echo", {})
    if modern:
        wanted = {"tools_list_changed": True, "resource_subscriptions": ["a://doc", "a://secret"]}
        async with client.listen(**wanted) as stream:
            seen["told"].clear()
            seen["honored"] = stream.honored.model_dump(by_alias=True, exclude_none=True)
            await call(client, "poke", {})
            events = [type(await anext(aiter(stream))).__name__ for _ in range(2)]
        seen["events"] = sorted(events)
    else:
        await client.send_ping()
        await client.send_roots_list_changed()
        await client.subscribe_resource("a://doc")
        seen["told"].clear()
        await call(client, "poke", {})
    seen["many"] = len(await asyncio.gather(*(call(client, "echo", {"n": n}) for n in range(50))))


asyncio.run(main())
