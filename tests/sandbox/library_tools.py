"""Tools that are nothing but other people's libraries: each opens its own connections, and none knows of licet."""

import asyncio
import ssl
from typing import Any

from licet import tool

NEEDS = ["network:tcp:*", "fs:read:*"]


def _why(error: BaseException | None) -> str:
    """Everything that was said on the way from the socket to the tool."""
    said: list[str] = []
    while error is not None and len(said) < 20:
        said.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return "no: " + " <- ".join(said)


@tool(needs=NEEDS, effect="write_limited")
def with_urllib(url: str, authority: str = "") -> str:
    """A page, by the standard library."""
    import urllib.request

    trust = ssl.create_default_context(cafile=authority) if authority else None
    try:
        with urllib.request.urlopen(url, timeout=60, context=trust) as answer:
            return str(answer.read().decode())
    except OSError as error:
        return _why(error)


@tool(needs=NEEDS, effect="write_limited")
def with_requests(url: str, authority: str = "") -> str:
    """A page, by requests."""
    import requests

    try:
        with requests.Session() as session:
            return str(session.get(url, timeout=60, verify=authority or True).text)
    except requests.RequestException as error:
        return _why(error)


@tool(needs=NEEDS, effect="write_limited")
def with_httpx2(url: str, authority: str = "") -> str:
    """A page, by httpx2."""
    import httpx2

    try:
        trust: Any = ssl.create_default_context(cafile=authority) if authority else True
        with httpx2.Client(verify=trust, timeout=60) as client:
            return client.get(url).text
    except httpx2.HTTPError as error:
        return _why(error)


@tool(needs=NEEDS, effect="write_limited")
async def with_httpx2_async(url: str, authority: str = "") -> str:
    """A page, by httpx2 in a loop."""
    import httpx2

    try:
        trust: Any = ssl.create_default_context(cafile=authority) if authority else True
        async with httpx2.AsyncClient(verify=trust, timeout=60) as client:
            return (await client.get(url)).text
    except httpx2.HTTPError as error:
        return _why(error)


@tool(needs=NEEDS, effect="write_limited")
async def with_aiohttp(url: str, authority: str = "") -> str:
    """A page, by aiohttp; twice at once, as it is made for that."""
    import aiohttp

    trust: Any = ssl.create_default_context(cafile=authority) if authority else True

    async def get(session: aiohttp.ClientSession) -> str:
        async with session.get(url, ssl=trust) as answer:
            return await answer.text()

    try:
        async with aiohttp.ClientSession() as session:
            one, two = await asyncio.gather(get(session), get(session))
            return one if one == two else "two pages"
    except aiohttp.ClientError as error:
        return _why(error)


@tool(needs=NEEDS, effect="write_limited")
def with_pg8000(host: str, port: int, authority: str = "") -> str:
    """The answer of a PostgreSQL database, by a driver in Python."""
    import pg8000.native  # type: ignore[import-untyped]

    trust = ssl.create_default_context(cafile=authority) if authority else None
    try:
        base = pg8000.native.Connection("reader", host, port=port, password="secret", ssl_context=trust, timeout=60)
        try:
            return str(base.run("select word")[0][0])
        finally:
            base.close()
    except (pg8000.native.InterfaceError, OSError) as error:
        return _why(error)


PAGES = (with_urllib, with_requests, with_httpx2, with_httpx2_async, with_aiohttp)
