"""The forms of private keys that are read: the common one, all other known ones; and files without a key."""

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from licet.backends import secrets
from licet.backends.secrets import BadKey, create_key, read_key


def read(path: Path) -> str:
    return read_key(str(path), "put its backup there", links=False).public


def text_of(der: bytes) -> bytes:
    return b"-----BEGIN PRIVATE KEY-----\n" + base64.b64encode(der) + b"\n-----END PRIVATE KEY-----\n"


def der_of(text: bytes) -> bytes:
    return base64.b64decode(text.splitlines()[1])


# The same key as other programs write it.
FORMS: dict[str, Callable[[bytes], bytes]] = {
    "as it was made": lambda text: text,
    "without an end of its last line": lambda text: text.rstrip(),
    "with lines as on Windows": lambda text: text.replace(b"\n", b"\r\n"),
    "with words before it": lambda text: b"a backup\n" + text,
    "in short lines": lambda text: text.replace(b"MC4CAQ", b"MC4C\nAQ"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_key_is_the_same_in_every_form(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a.key"
    public = create_key(str(path)).public
    path.write_bytes(FORMS[form](path.read_bytes()))
    assert read(path) == public


def test_a_key_as_it_was_made_is_read_without_what_reads_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.key"
    public = create_key(str(path)).public
    monkeypatch.setattr(secrets, "_any_key", lambda _: pytest.fail("it takes long to load"))
    assert read(path) == public


# Almost a key: of another kind, too short, too long, cut, or no base64.
WRONG: dict[str, Callable[[bytes], bytes]] = {
    "for agreeing on secrets": lambda text: text_of(der_of(text).replace(b"\x2b\x65\x70", b"\x2b\x65\x6e")),
    "a byte short": lambda text: text_of(der_of(text)[:-1]),
    "a byte long": lambda text: text_of(der_of(text) + b"\0"),
    "half": lambda text: text[: len(text) // 2],
    "no base64": lambda text: text.replace(b"MC4CAQ", b"MC4C*Q"),
    "a sign too many": lambda text: text.replace(b"\n-----END", b"=\n-----END"),
    "nothing": lambda _: b"",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_without_a_key_is_refused(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "a.key"
    create_key(str(path))
    path.write_bytes(WRONG[wrong](path.read_bytes()))
    with pytest.raises(BadKey, match=r"holds no Ed25519 key: put its backup there$"):
        read(path)
