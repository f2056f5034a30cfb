"""Variables and files of the machine that send requests elsewhere, or add credentials and authorities to them."""

from pathlib import Path

import httpx2
import pytest

from attacks.granted import refused
from attacks.nets import answer, fetching, inner
from guard.grants import grant
from licet.backends.http import HttpClient
from licet.backends.memory import Answer
from licet.guard.handles.fetch import ScopedFetch
from loopback import authority_file, serving


def test_a_proxy_from_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(inner) as proxy, serving(lambda _: Answer(200, (), b"direct")) as server:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        url = f"http://127.0.0.1:{server.port}/"

        assert httpx2.get(url).content != b"direct"
        assert len(proxy.seen) == 1

        assert answer(fetching(None, "network:*:127.0.0.1")(url)).content == b"direct"
        assert len(proxy.seen) == 1


def test_a_netrc_file_adds_no_password(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login me password hush\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HOME", str(tmp_path))
    with serving(inner) as server:
        url = f"http://127.0.0.1:{server.port}/"
        httpx2.get(url, auth=httpx2.NetRCAuth())
        assert "authorization" in dict(server.seen[-1].headers)

        answer(fetching(None, "network:*:127.0.0.1")(url))
        assert "authorization" not in dict(server.seen[-1].headers)


def test_an_authority_from_the_environment_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", authority_file(tmp_path))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    with serving(inner, names=("127.0.0.1",)) as server:
        url = f"https://127.0.0.1:{server.port}/"
        assert httpx2.get(url).status_code == 200

        fetch = ScopedFetch(grant(["network:*:127.0.0.1"]), HttpClient())
        assert refused(fetch(url)) == "CONNECT_FAILED"
        assert "its certificate is not trusted" in fetch._grant.events[-1].rule
        assert len(server.seen) == 1
