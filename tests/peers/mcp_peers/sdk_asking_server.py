"""A server of `mcp` 2.x whose tools ask their client on the wire, as most servers do. Its schemas have floats."""

from typing import Annotated, Any

from mcp.server import MCPServer  # type: ignore[import-not-found,unused-ignore]
from mcp.server.mcpserver import Context  # type: ignore[import-not-found,unused-ignore]
from mcp_types import SamplingMessage, TextContent  # type: ignore[import-not-found,unused-ignore]
from pydantic import BaseModel, Field

app: Any = MCPServer("asks", instructions="be kind")


class Answer(BaseModel):
    """What the person fills in."""

    ok: bool


@app.tool()  # type: ignore[untyped-decorator,unused-ignore]
async def ask(ctx: Context) -> str:
    """Ask the person."""
    result = await ctx.elicit("May I?", Answer)
    return f"{result.action} {result.data.ok}"


@app.tool()  # type: ignore[untyped-decorator,unused-ignore]
async def sample(ctx: Context) -> str:
    """Ask the model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text="Say yo."))
    result: Any = await ctx.session.create_message(messages=[message], max_tokens=10)
    return str(result.content.text)


@app.tool()  # type: ignore[untyped-decorator,unused-ignore]
def count(
    n: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0, large: Annotated[int, Field(le=2**63 - 1)] = 2**63 - 1
) -> dict[str, float]:
    """Count."""
    return {"n": n, "large": large}


@app.tool(meta={"ui": {"resourceUri": "ui://asks/form", "visibility": ["app"]}})  # type: ignore[untyped-decorator,unused-ignore]
def submit() -> str:
    """Submit what the person agreed to."""
    return "done"


app.run()
