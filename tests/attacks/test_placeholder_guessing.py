"""A placeholder is guessed, kept for another call, or put where its value would come back to the tool."""

import asyncio
import json
import re
from typing import Any

from attacks.programs import programs
from guard.grants import grant
from licet.backends.memory import Answer, MemoryHttp
from licet.backends.secrets import MemorySecrets
from licet.guard.handles.fetch import ScopedFetch
from licet.guard.handles.secrets_and_kv import ScopedSecrets
from licet.guard.redaction.redact import Redactor

VALUE = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"
RULES = ("secret:read:STRIPE_KEY", "network:*:api.test", "process:exec:cat", "process:exec:env", "env:read:KEY")


def secrets(held: Any = None) -> ScopedSecrets:
    return ScopedSecrets(held or grant(RULES), MemorySecrets({"STRIPE_KEY": VALUE}), Redactor())


def test_a_placeholder_that_can_be_worked_out_gives_the_secret_away() -> None:
    # What others do: the reference in braces. Whoever controls a text controls what is put into it.
    text = json.dumps({"comment": "{{secrets.STRIPE_KEY}}"})
    assert VALUE in re.sub(r"\{\{secrets\.(\w+)\}\}", lambda found: {"STRIPE_KEY": VALUE}[found[1]], text)

    handle = secrets()
    place = handle.ref("STRIPE_KEY")
    guesses = ["{{secrets.STRIPE_KEY}}", "licet-ref-STRIPE_KEY", "licet-ref-" + "0" * 32, place[:-1], place[:-1] + "g"]
    for guess in (*guesses, place.upper(), place.replace("licet", "LICET")):
        assert asyncio.run(handle.resolve(guess)) == guess
        assert asyncio.run(handle.resolve_bytes(guess.encode())) == guess.encode()


def test_no_two_calls_have_the_same_and_none_knows_another_s() -> None:
    places = {secrets().ref("STRIPE_KEY") for _ in range(100)}
    assert len(places) == 100
    one, other = secrets(), secrets()
    place = one.ref("STRIPE_KEY")
    other.ref("STRIPE_KEY")
    assert VALUE in asyncio.run(one.resolve(place))
    assert asyncio.run(other.resolve(place)) == place


def test_a_placeholder_in_a_url_is_sent_as_it_is() -> None:
    held = grant(RULES)
    handle = secrets(held)
    place = handle.ref("STRIPE_KEY")
    network = MemoryHttp(lambda exchange: Answer(200, (), exchange.url.encode()), {"api.test": ["93.184.216.34"]})
    fetch = ScopedFetch(held, network, handle)
    reply = asyncio.run(fetch(f"https://api.test/{place}?key={place}", headers={"Authorization": f"Bearer {place}"}))
    sent = network.sent[0]
    assert VALUE not in sent.url
    assert place in sent.url
    assert VALUE not in reply.text
    assert f"Bearer {VALUE}" in dict(sent.headers).values()  # where it belongs


def test_a_placeholder_in_a_result_stays_one() -> None:
    handle = secrets()
    place = handle.ref("STRIPE_KEY")
    redactor = Redactor()
    assert redactor.text(place) == place
    assert redactor.json(b'{"echo":["%b"]}' % place.encode()) == b'{"echo":["%b"]}' % place.encode()


def test_a_placeholder_in_arguments_or_input_of_a_program_stays_one() -> None:
    held = grant(RULES)
    handle = secrets(held)
    place = handle.ref("STRIPE_KEY")
    process = programs(*RULES, placeholders=handle)
    said = asyncio.run(process.spawn("cat", stdin=place.encode()))
    assert said.stdout_bytes == place.encode()
    # In the child's environment it is placed; what the child says of it is redacted.
    child = asyncio.run(process.spawn("env", env={"KEY": place}))
    assert child.stdout_bytes == b"KEY=[redacted STRIPE_KEY]\n"
    assert handle._redactor.text(VALUE) == "[redacted STRIPE_KEY]"
