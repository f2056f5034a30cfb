"""The program of the process in which long checks by a JSON Schema run. `json_schema` starts it and talks to it.

It has the standard library and `jsonschema_rs` alone, and runs no code of anybody else. It gets one question after the
other: three lengths, then options, a schema and data, each as JSON. It answers with a line: yes, no, or that the schema
cannot be used; and after a no with a second line, which lists some errors.
"""

import json
import signal
import struct
import sys
from functools import lru_cache
from itertools import islice
from typing import Any

LENGTHS = struct.Struct("!3I")
READY, YES, NO, UNUSABLE = b"ready\n", b"y\n", b"n\n", b"u"
MOST_ERRORS = 5
_MOST_MEMORY = 1 << 30  # bytes of addresses, of which the interpreter and its libraries take a few hundred million
_MOST_SECONDS = 10.0  # for one question, should nobody be there any more to end this process
_LONGEST = 300  # characters of one text in an answer


def main() -> None:
    """Answer questions until the input ends."""
    sys.path.append(sys.argv[1])
    import resource

    import jsonschema_rs  # noqa: F401 - before the limits, and before anybody waits for an answer

    if sys.platform != "darwin":  # where the kernel has no limit of addresses
        _lower(resource.RLIMIT_AS, _MOST_MEMORY)
    _lower(resource.RLIMIT_CORE, 0)
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    answers.write(READY)
    answers.flush()
    while len(lengths := questions.read(LENGTHS.size)) == LENGTHS.size:
        signal.setitimer(signal.ITIMER_REAL, _MOST_SECONDS)  # its signal ends the process
        options, schema, data = (questions.read(length) for length in LENGTHS.unpack(lengths))
        for line in _answer(options, schema, json.loads(data)):
            answers.write(line)
            answers.flush()
        signal.setitimer(signal.ITIMER_REAL, 0)


def _lower(kind: int, most: int) -> None:
    """Lower a limit for good; a limit that is lower already stays."""
    import resource

    hard = resource.getrlimit(kind)[1]
    limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (limit, limit))


def _answer(options: bytes, schema: bytes, data: object) -> Any:
    try:
        validator = _compiled(options, schema)
    except Exception as wrong:
        yield UNUSABLE + json.dumps(first_line(wrong)).encode() + b"\n"
        return
    if validator.is_valid(data):
        yield YES
        return
    yield NO
    errors = [_told(error) for error in islice(validator.iter_errors(data), MOST_ERRORS)]
    yield json.dumps(errors).encode() + b"\n"


@lru_cache(maxsize=20)
def _compiled(options: bytes, schema: bytes) -> Any:
    return compile_schema(json.loads(schema), **json.loads(options))


def compile_schema(schema: Any, *, largest_pattern: int, rules: bool) -> Any:
    """A validator that fetches no other document. `rules`: of a manifest, where an unknown format is an error."""
    import jsonschema_rs

    patterns = jsonschema_rs.RegexOptions(size_limit=largest_pattern)
    if rules:
        return jsonschema_rs.Draft202012Validator(
            schema,
            retriever=_no_other_schema,
            pattern_options=patterns,
            validate_formats=True,
            ignore_unknown_formats=False,
        )
    return jsonschema_rs.validator_for(schema, retriever=_no_other_schema, pattern_options=patterns)


def first_line(wrong: Exception) -> str:
    """What is wrong with a schema, in one line."""
    return (str(wrong).splitlines() or [type(wrong).__name__])[0][:200]


def _no_other_schema(address: str) -> Any:
    raise ValueError(f"only what is in the schema itself is used, and it refers to another document: {address[:80]}")


def _told(error: Any) -> list[str]:
    """Where an error is, what the library says of it, and the keyword that was broken."""
    rule = list(error.schema_path)[-1:] or ["schema"]
    place = ".".join(map(str, error.instance_path))
    return [place[:_LONGEST], error.message[:_LONGEST], str(rule[0])[:_LONGEST]]


if __name__ == "__main__":
    main()
