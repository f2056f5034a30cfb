"""A header that ends its line and begins another, or that changes where a message goes and how it is framed."""

import asyncio

import pytest

from attacks.granted import refused
from attacks.nets import fetching, inner
from loopback import serving, talking

INJECTED = [
    ("X-City", "oslo\r\nX-Admin: 1"),
    ("X-City", "oslo\nX-Admin: 1"),
    ("X-City", "oslo\rX-Admin: 1"),
    ("X-City", "oslo\0"),
    ("X-City", "oslo\x0bX-Admin: 1"),
    ("X-City", "oslo\x7f"),
    ("X-City", "oslo\x85X-Admin: 1"),
    ("X-City", "oslo\u2028X-Admin: 1"),
    ("X-City", "oslo\u560d\u560aX-Admin: 1"),  # whose low bytes are CR and LF
    ("X-City: a\r\nX-Admin", "1"),
    ("X-City\n", "1"),
    ("X City", "1"),
    ("X-City:", "1"),
    ("", "1"),
    (":authority", "evil.test"),
    ("X-Ünicode", "1"),
]
NOT_THEIRS = [
    "Host", "HOST", "Content-Length", "Transfer-Encoding", "transfer-encoding", "Connection", "Keep-Alive", "TE",
    "Trailer", "Upgrade", "Expect", "HTTP2-Settings", "Proxy-Authorization", "proxy-connection", "Proxy-X",
    "X-HTTP-Method-Override", "x-http-method", "X_Method_Override",
    "Transfer_Encoding", "content_length", "Keep_Alive", "Proxy_Authorization",
]  # fmt: skip


def test_a_line_break_in_a_header_is_another_header() -> None:
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 ok\r\n\r\n")
        await writer.drain()

    async def by_hand(port: int, city: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET / HTTP/1.1\r\nHost: a.test\r\nX-City: {city}\r\n\r\n".encode())
        await reader.read(10)
        writer.close()
        await writer.wait_closed()

    with talking(listen) as server:
        asyncio.run(by_hand(server.port, "oslo\r\nX-Admin: 1"))
        assert b"\r\nX-Admin: 1\r\n" in heard


@pytest.mark.parametrize(("name", "value"), INJECTED)
def test_no_header_is_more_than_one_line(name: str, value: str) -> None:
    with serving(inner) as server:
        url = f"http://127.0.0.1:{server.port}/"
        for headers in ({name: value}, [(name, value)], [("x-ok", "1"), (name, value)]):
            assert refused(fetching(None, "network:*:127.0.0.1")(url, headers=headers)) == "INPUT_INVALID"
        assert server.connections == 0


@pytest.mark.parametrize("name", NOT_THEIRS)
def test_where_a_message_goes_is_not_a_callers_to_say(name: str) -> None:
    with serving(inner) as server:
        url = f"http://127.0.0.1:{server.port}/"
        assert refused(fetching(None, "network:*:127.0.0.1")(url, headers={name: "5"})) == "INPUT_INVALID"
        assert server.connections == 0


@pytest.mark.parametrize("path", ["/a\r\nX-Admin: 1", "/a\nX-Admin: 1", "/a b HTTP/1.1\r\nX-Admin: 1\r\n\r\n"])
def test_a_line_break_in_a_url_or_method_is_refused(path: str) -> None:
    with serving(inner) as server:
        fetch = fetching(None, "network:*:127.0.0.1")
        assert refused(fetch(f"http://127.0.0.1:{server.port}{path}")) == "HOST_NOT_ALLOWED"
        assert refused(fetch(f"http://127.0.0.1:{server.port}/", f"GET {path}")) == "HOST_NOT_ALLOWED"
        assert server.connections == 0
