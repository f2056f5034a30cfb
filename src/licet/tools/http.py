"""Tools for HTTP: get and post. The manifest decides which hosts; redirects are checked like the first request."""

import re
from typing import Any

from licet import Context, tool

MOST_TEXT = 256 * 1024  # bytes of a body that are returned
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([A-Za-z0-9._-]{1,40})", re.IGNORECASE)
# The charsets that pages use. Python has more codecs, and some of them are very slow on hostile bytes.
_CHARSETS = frozenset(
    {
        *("utf-8", "us-ascii", "iso-8859-1", "iso-8859-2", "iso-8859-15", "windows-1250", "windows-1251"),
        *("windows-1252", "utf-16", "shift_jis", "euc-jp", "euc-kr", "gb2312", "gbk", "gb18030", "big5", "koi8-r"),
    }
)


@tool(capabilities={"network": {"allowed_hosts": ["*"]}}, effect="read_only", sandbox="restricted")
async def http_get(ctx: Context, url: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """Fetch a URL: the status, headers and text of the answer.
    Redirects are followed. `truncated` says that the text is only the beginning.
    """
    return await _request(ctx, url, "GET", headers or {})


@tool(capabilities={"network": {"allowed_hosts": ["*"]}}, effect="write_limited", sandbox="restricted")
async def http_post(
    ctx: Context,
    url: str,
    json: dict[str, Any] | list[Any] | None = None,
    body: str | None = None,
    headers: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Post to a URL, either data as `json` or a text as `body`: the status, headers and text of the answer.
    `truncated` says that the text is only the beginning.
    """
    if json is not None and body is not None:
        raise ValueError("expected `json` or `body`, not both")
    return await _request(ctx, url, "POST", headers or {}, json=json, body=body)


async def _request(ctx: Context, url: str, method: str, headers: dict[str, str], **content: Any) -> dict[str, Any]:
    body = bytearray()
    async with ctx.fetch.stream(url, method, headers=headers, **content) as answer:
        async for piece in answer:
            body += piece
            if len(body) > MOST_TEXT:
                break
        named = _CHARSET.search(answer.headers.get("content-type", ""))
        return {
            "status": answer.status,
            "url": answer.url,
            "headers": dict(answer.headers),
            "text": _text(bytes(body[:MOST_TEXT]), named[1].lower() if named else ""),
            "truncated": len(body) > MOST_TEXT,
        }


def _text(body: bytes, charset: str) -> str:
    return body.decode(charset if charset in _CHARSETS else "utf-8", "replace")
