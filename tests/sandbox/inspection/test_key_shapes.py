"""A stand-in has the shape of its secret, and a secret that cannot have one is refused with the reason."""

import base64
import json
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licet.sandbox.inspection.key_shapes import CannotPlace, check_key, new_stand_in, shape_of

GITHUB = "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"  # with the checksum that GitHub gives it

KEPT = {
    GITHUB: "ghp_",
    "github_pat_11ABCDEFG0abcdefghijkl_x9Yv3Tq8Rr7Kk2Pp1Zz0Ww6Mm4Nn5": "github_pat_",
    "sk-ant-api03-Qm9vU2Rk8sKd7fLq2-x_A1bZr4TnYw": "sk-ant-api03-",
    "sk-proj-T3BlbkFJq8Rr7Kk2Pp1Zz0Ww6Mm4": "sk-proj-",
    "sk-or-v1-0a1b2c3d4e5f60718293a4b5c6d7e8f9": "sk-or-v1-",
    "glpat-xY3zAb9_kLmN2pQrStUv": "glpat-",
    "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": "npm_",
    "xoxb-1234567890-0987654321-AbCdEfGhIjKl": "xoxb-",
    "pypi-AgEIcHlwaS5vcmcCJDk3ZmQ4": "pypi-",
    "hf_QwErTyUiOpAsDfGhJkLzXcVb": "hf_",
    "AIzaSyD3m0Key9xYzAbCdEfGhIjKlMnOpQrStUv": "AIza",
    "Qm9vU2Rk8sKd7fLq2xA1bZr4TnYw": "",
    "correct-horse-battery-staple": "",  # a phrase: its words are the secret
    "lower-and-then-Xy12345678901234": "lower-and-",  # with one word more, too little would be random
}

REFUSED = {
    "under 16": "aB3dEfGh1JkLmN0",
    "empty": "",
    "too long": "aB3dEfGh1JkLmN0p" * 300,
    "no randomness": "a" * 40,
    "few bits": "0123-4567-8901-23",
    "JWT": ".".join(
        base64.urlsafe_b64encode(part.encode()).decode().rstrip("=")
        for part in (json.dumps({"alg": "HS256"}), json.dumps({"sub": "me"}), "a signature of it")
    ),
    "PEM": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n-----END PRIVATE KEY-----\n",
    "JSON": json.dumps({"type": "service_account", "private_key_id": "aB3dEfGh1JkLmN0p"}),
    "line break": "aB3dEfGh1JkLmN0pQrSt\n",
    "control": "aB3dEfGh1JkLmN0p\0QrSt",
    "not ASCII": "aB3dEfGh1JkLmN0pQrStü",
    "space": "aB3dEfGh1JkL mN0pQrSt",
    "percent": "aB3dEfGh1JkL%41N0pQrSt",
    "backslash": "aB3dEfGh1JkL\\mN0pQrSt",
    "repeats": "aB3dEfGh1JkLmN0p" * 3,
}
REASONS = {
    "under 16": "15 characters", "empty": "0 characters", "too long": "4096", "no randomness": "random",
    "few bits": "random", "JWT": "JWT", "PEM": "PEM", "JSON": "JSON", "line break": "line break", "control": "control",
    "not ASCII": "ASCII", "space": "space", "percent": "`%`", "backslash": "backslash", "repeats": "again",
}  # fmt: skip


@pytest.mark.parametrize("secret", KEPT)
def test_the_kind_of_a_key_stays(secret: str) -> None:
    made = [new_stand_in(secret, ()) for _ in range(8)]
    assert all(one.startswith(KEPT[secret]) for one in made)
    begin = len(KEPT[secret])
    assert len({one[begin:] for one in made}) == 8
    assert not any(one[begin : begin + 12] == secret[begin : begin + 12] for one in made)


@pytest.mark.parametrize("why", REFUSED)
def test_a_secret_that_cannot_have_a_stand_in_is_refused(why: str) -> None:
    with pytest.raises(CannotPlace) as refusal:
        check_key(REFUSED[why])
    assert REASONS[why] in str(refusal.value)
    assert not REFUSED[why][:12] or REFUSED[why][:12] not in str(refusal.value)


def shape(text: str) -> str:
    return re.sub("[a-z]", "a", re.sub("[A-Z]", "A", re.sub("[0-9]", "0", text)))


SIGNS = string.ascii_letters + string.digits + "-_.~+/=!$&'()*,:;@\""


def placeable(secret: str) -> bool:
    try:
        check_key(secret)
    except CannotPlace:
        return False
    return True


@given(st.text(SIGNS, min_size=16, max_size=120).filter(placeable))
def test_a_stand_in_has_the_length_and_the_classes_of_its_secret(secret: str) -> None:
    made = new_stand_in(secret, ())
    assert (len(made), shape(made)) == (len(secret), shape(secret))
    assert made != secret
    assert placeable(made)


@given(st.text(string.hexdigits[:16], min_size=32, max_size=64).filter(placeable))
def test_a_hexadecimal_key_stays_one(secret: str) -> None:
    assert re.fullmatch("[0-9a-f]+", new_stand_in(secret, ()))


def test_a_key_with_a_checksum_gets_a_stand_in_with_a_right_one() -> None:
    """Some clients compute it before they send a key."""
    from zlib import crc32

    digits = string.digits + string.ascii_uppercase + string.ascii_lowercase
    for _ in range(20):
        made = new_stand_in(GITHUB, ())
        number = 0
        for sign in made[-6:]:
            number = number * 62 + digits.index(sign)
        assert number == crc32(made[4:-6].encode())
    wrong = GITHUB[:-1] + "8"
    assert shape(new_stand_in(wrong, ())) == shape(wrong)


def test_stand_ins_do_not_contain_each_other() -> None:
    made: list[str] = []
    for _ in range(50):
        made.append(new_stand_in("aB3dEfGh1JkLmN0p", made))
    assert not any(one in other for one in made for other in made if one is not other)


@given(st.text(string.ascii_lowercase[:8] + "AZ09-_.", min_size=16, max_size=60))
def test_a_stand_in_tells_the_shape_of_its_secret(secret: str) -> None:
    try:
        check_key(secret)
    except CannotPlace:
        return
    made = new_stand_in(secret, ())
    assert shape_of(made) == shape_of(secret)
    assert all(sign in signs for sign, signs in zip(secret, shape_of(made), strict=True))
