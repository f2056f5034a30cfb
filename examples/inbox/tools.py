"""The tools of an assistant that has the user's mail, calendar and files, and reads the web."""

from urllib.parse import quote

from licet import Context, tool
from licet.handles import Json

MAIL, CALENDAR, DRIVE = "https://mail.example.com", "https://calendar.example.com", "https://drive.example.com"


@tool(needs=["network:https:get@mail.example.com"], effect="read_only", sandbox="restricted")
async def list_mail(ctx: Context) -> Json:
    """The mails of the last days."""
    return (await ctx.fetch(f"{MAIL}/mails")).json()


@tool(needs=["network:https:post@mail.example.com"], effect="write_limited", sandbox="restricted")
async def send_mail(ctx: Context, recipients: list[str], subject: str, body: str) -> Json:
    """Send a mail, and return its id."""
    mail = {"to": recipients, "subject": subject, "body": body}
    return (await ctx.fetch(f"{MAIL}/mails", method="POST", json=mail)).json()


@tool(needs=["network:https:get@calendar.example.com"], effect="read_only", sandbox="restricted")
async def list_events(ctx: Context) -> Json:
    """The events of the next weeks."""
    return (await ctx.fetch(f"{CALENDAR}/events")).json()


@tool(needs=["network:https:post@calendar.example.com"], effect="write_limited", sandbox="restricted")
async def add_event(ctx: Context, title: str, day: str, participants: list[str]) -> Json:
    """Add an event, invite people to it, and return its id."""
    event = {"title": title, "day": day, "participants": participants}
    return (await ctx.fetch(f"{CALENDAR}/events", method="POST", json=event)).json()


@tool(needs=["network:https:get@drive.example.com"], effect="read_only", sandbox="restricted")
async def list_files(ctx: Context) -> Json:
    """The names of the user's files."""
    return (await ctx.fetch(f"{DRIVE}/files")).json()


@tool(needs=["network:https:get@drive.example.com"], effect="read_only", sandbox="restricted")
async def read_file(ctx: Context, name: str) -> Json:
    """The text of a file."""
    return (await ctx.fetch(f"{DRIVE}/files/{quote(name, safe='')}")).json()


@tool(needs=["network:https:post@drive.example.com"], effect="write_limited", sandbox="restricted")
async def delete_file(ctx: Context, name: str) -> Json:
    """Move a file to the bin."""
    return (await ctx.fetch(f"{DRIVE}/bin", method="POST", json={"name": name})).json()


@tool(needs=["network:https:get@people.example.com"], effect="read_only", sandbox="restricted")
async def search_people(ctx: Context, name: str) -> Json:
    """People of the company, with their addresses."""
    return (await ctx.fetch(f"https://people.example.com/people?name={quote(name)}")).json()


@tool(needs=["network:https:get@*.test"], effect="read_only", sandbox="restricted")
async def open_page(ctx: Context, url: str) -> str:
    """The text of a page."""
    return (await ctx.fetch(url)).raise_for_status().text
