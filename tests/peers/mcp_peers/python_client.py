"""Sends requests with the client of `mcp` 1.x or 2.x, and prints the answers. Run with the Python that has the package.

Standard input has JSON: `command`, `directory`, `mode` (of 2.x), and `requests`, each a method with its parameters.
"""

import asyncio
import json
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp  # type: ignore[import-not-found,unused-ignore]
from mcp import StdioServerParameters

warnings.simplefilter("ignore")  # methods of older versions are deprecated
LISTS = {
    "tools/list": ("list_tools", "tools"),
    "resources/list": ("list_resources", "resources"),
    "resources/templates/list": ("list_resource_templates", "resourceTemplates"),
    "prompts/list": ("list_prompts", "prompts"),
}


@asynccontextmanager
async def opened(order: dict[str, Any]) -> AsyncIterator[Any]:
    command, *arguments = order["command"]
    server = StdioServerParameters(command=command, args=arguments, cwd=order["directory"], env=order["environment"])
    if hasattr(mcp, "Client"):
        async with mcp.Client(server, mode=order["mode"]) as client:
            print(json.dumps({"version": client.protocol_version, "instructions": client.instructions}))
            yield client
        return
    from mcp.client.stdio import stdio_client  # type: ignore[import-not-found,unused-ignore]

    async with stdio_client(server) as streams, mcp.ClientSession(*streams) as client:
        opening = await client.initialize()
        print(json.dumps({"version": opening.protocolVersion, "instructions": opening.instructions}))
        yield client


async def answer(client: Any, method: str, given: dict[str, Any]) -> dict[str, Any]:
    """The result of a request; of a list, with all pages."""
    if method in LISTS:
        name, key = LISTS[method]
        found = plain(await getattr(client, name)())
        while cursor := found.pop("nextCursor", None):
            more = plain(await getattr(client, name)(cursor=cursor))
            found = {**more, key: [*found[key], *more[key]]}
        return found
    if method == "tools/call":
        return plain(await client.call_tool(given["name"], given.get("arguments")))
    if method == "resources/read":
        return plain(await client.read_resource(given["uri"]))
    if method == "prompts/get":
        return plain(await client.get_prompt(given["name"], given.get("arguments")))
    ref = given["ref"]
    types: Any = mcp.types if hasattr(mcp, "types") else __import__("mcp_types")
    kind = types.PromptReference if ref["type"] == "ref/prompt" else types.ResourceTemplateReference
    return plain(await client.complete(kind(**ref), given["argument"]))


def plain(result: Any) -> dict[str, Any]:
    found: dict[str, Any] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return found


async def main() -> None:
    order = json.load(sys.stdin)
    wrong = getattr(mcp, "MCPError", None) or mcp.McpError
    async with opened(order) as client:
        for method, given in order["requests"]:
            try:
                line: dict[str, Any] = {"result": await answer(client, method, given)}
            except wrong as error:
                line = {"error": {"code": error.error.code, "message": error.error.message}}
            except RuntimeError as error:  # the client itself found the result at fault
                line = {"client": str(error)}
            print(json.dumps(line))


asyncio.run(main())
