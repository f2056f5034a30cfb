"""The tools of an agent that reads in a library on the web and takes notes."""

from urllib.parse import quote

from licet import Context, tool
from licet.handles import Json


@tool(
    capabilities={
        "network": {"allowed_hosts": ["localhost"]},
        "secrets": ["library/token"],
        "env": ["LIBRARY_URL"],
    },
    effect="read_only",
    sandbox="restricted",
)
async def search_library(ctx: Context, words: str) -> Json:
    """Pages of the library about something."""
    # The reference becomes the token where the request is sent; neither this code nor the model ever has it.
    token = ctx.secrets.ref("library/token")
    url = f"{ctx.env.get('LIBRARY_URL')}/search?q={quote(words)}"
    return (await ctx.fetch(url, headers={"Authorization": f"Bearer {token}"})).json()


@tool(capabilities={"network": {"allowed_hosts": ["localhost"]}}, effect="read_only", sandbox="restricted")
async def read_page(ctx: Context, url: str) -> str:
    """The text of a page."""
    return (await ctx.fetch(url)).raise_for_status().text


@tool(capabilities={"fs_reach": {"write": ["${workdir}/notes"]}}, effect="write_limited", sandbox="restricted")
async def save_note(ctx: Context, name: str, text: str) -> str:
    """Keep a note, and say where."""
    path = f"notes/{name}.md"
    await ctx.fs.write(path, text)
    return path
