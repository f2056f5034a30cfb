"""The tools of a small research agent.
Each declares what it touches, and a call can reach nothing else."""

from licet import Context, tool
from licet.handles import Json


@tool(
    capabilities={"network": {"allowed_hosts": ["api.weather.gov"]}, "secrets": ["WEATHER_API_KEY"]},
    effect="read_only",
    sandbox="restricted",
)
async def fetch_weather(ctx: Context, city: str) -> Json:
    """Today's forecast for a city."""
    key = await ctx.secrets.get("WEATHER_API_KEY")
    reply = await ctx.fetch(f"https://api.weather.gov/points/{city}", headers={"X-Key": key})
    return reply.json()


@tool(
    capabilities={"fs_reach": {"read": ["${workdir}/notes"]}},
    effect="read_only",
    sandbox="restricted",
)
async def read_notes(ctx: Context, name: str) -> str:
    """One of the notes that the team keeps."""
    return await ctx.fs.read(f"notes/{name}.md")


@tool(
    capabilities={"fs_reach": {"write": ["${workdir}/reports"]}},
    effect="write_limited",
    sandbox="restricted",
)
async def save_report(ctx: Context, title: str, text: str) -> str:
    """Keep a report as a file, and say where."""
    path = f"reports/{title}.md"
    await ctx.fs.write(path, text)
    return path


@tool(
    needs=["network:https:post@reports.example.com", "fs:read:${workdir}/reports", "secret:read:reports/token"],
    effect="write_limited",
    sandbox="isolated",
)
async def publish_report(ctx: Context, title: str) -> int:
    """Put a report on the team's page, and return the status of the page's answer."""
    token = await ctx.secrets.get("reports/token")
    text = await ctx.fs.read(f"reports/{title}.md")
    reply = await ctx.fetch(
        "https://reports.example.com/pages",
        method="POST",
        headers={"Authorization": f"Bearer {token}"},
        body=text,
    )
    return reply.status
