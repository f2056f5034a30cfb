"""Lines of recordings are read as they were written; anything else is refused."""

import pytest

from licet.core.review.recording_lines import (
    BadRecording,
    RecordingStart,
    Touch,
    recording_line,
    recording_start,
    touch,
)

START = RecordingStart(source="program", started=1, command=("git", "status"), workdir="/w", home="/h")
TOUCH = Touch(time=2, call="process 7", tool="git", use="fs:read:/w/.git/config")


def test_lines_are_read_as_they_were_written() -> None:
    assert recording_start(recording_line(START)) == START
    assert touch(recording_line(TOUCH)) == TOUCH


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "no recording"),
        (b"{}", "no recording"),
        (recording_line(START).replace(b'"format":1', b'"format":2'), "has format 2"),
        (recording_line(START).replace(b'"source":"program"', b'"source":"other"'), "no recording"),
    ],
)
def test_other_first_lines_are_refused(line: bytes, said: str) -> None:
    with pytest.raises(BadRecording, match=said):
        recording_start(line)


@pytest.mark.parametrize("line", [b"[]", b"{", recording_line(TOUCH)[:-9], recording_line(START)])
def test_other_lines_are_refused(line: bytes) -> None:
    with pytest.raises(BadRecording):
        touch(line)
