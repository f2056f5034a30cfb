"""A `str` that says one thing when it is checked and another when it is used."""

from typing import Any

from attacks.granted import refused
from attacks.nets import SECRET, answer, fetching, inner, reached
from licet.backends.memory import Answer
from loopback import serving


class Liar(str):
    """Text whose every answer is about a harmless URL; its characters are another's."""

    said = ""

    def __str__(self) -> str:
        return self.said

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(self.said)

    def __contains__(self, part: object) -> bool:
        return False

    def __getitem__(self, place: Any) -> str:
        return self.said[place]

    def startswith(self, *args: Any) -> bool:
        return True

    def encode(self, *args: Any) -> bytes:
        return self.said.encode()

    def lower(self) -> str:
        return self.said.lower()

    def partition(self, sep: str) -> tuple[str, str, str]:
        return self.said.partition(sep)


def test_a_text_is_its_characters() -> None:
    with serving(inner) as evil, serving(lambda _: Answer(200, (), b"harmless")) as good:
        url = Liar(f"http://127.0.0.1:{evil.port}/")
        url.said = f"http://127.0.0.1:{good.port}/"

        # A check that compares, and a client that takes the characters.
        assert url == f"http://127.0.0.1:{good.port}/"
        assert url.startswith("http://harmless.test/")
        assert reached(str.__str__(url)) == SECRET

        assert refused(fetching(None, f"network:*:127.0.0.1:{good.port}")(url)) == "HOST_NOT_ALLOWED"
        assert len(evil.seen) == 1
        assert answer(fetching(None, f"network:*:127.0.0.1:{evil.port}")(url)).content == SECRET
        assert good.seen == []


def test_a_method_is_its_characters() -> None:
    with serving(inner) as server:
        method = Liar("POST")
        method.said = "GET"
        fetch = fetching(None, "network:http:get@127.0.0.1")
        assert refused(fetch(f"http://127.0.0.1:{server.port}/", method)) == "HOST_NOT_ALLOWED"
        assert server.seen == []


def test_a_header_is_its_characters() -> None:
    with serving(inner) as server:
        value = Liar("a\r\nX-Admin: 1")
        value.said = "harmless"
        name = Liar("Host")
        name.said = "x-harmless"
        fetch = fetching(None, "network:*:127.0.0.1")
        url = f"http://127.0.0.1:{server.port}/"
        assert refused(fetch(url, headers=[("x-a", value)])) == "INPUT_INVALID"
        assert refused(fetch(url, headers=[(name, "evil.test")])) == "INPUT_INVALID"
        assert server.seen == []
