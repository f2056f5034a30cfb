"""The settings of a terminal whose bytes are copied to and from another one, and giving it back those it had before.

The other terminal does all that a terminal does with what is typed and written: this one changes nothing meanwhile.
Where the copying process was killed, the supervisor of its program gives the settings back, so this imports nothing.
"""

import json
import os
import sys
from contextlib import suppress

if sys.platform != "win32":
    import termios

Settings = list[int | list[int]]  # as `tcgetattr` has them, with numbers for characters


def settings_of(terminal: int) -> Settings:
    """The settings of a terminal. Raises `termios.error`."""
    *flags, characters = termios.tcgetattr(terminal)
    return [*flags, [one if isinstance(one, int) else one[0] for one in characters]]


def passing(settings: Settings, *, reads: bool) -> Settings:
    """Settings that change nothing that is written, nor typed if somebody `reads` it."""
    inputs, outputs, control, local, *speeds, characters = settings
    assert isinstance(inputs, int) and isinstance(outputs, int) and isinstance(local, int)  # noqa: S101, PT018
    assert isinstance(characters, list)  # noqa: S101
    if reads:
        inputs &= ~(termios.BRKINT | termios.ICRNL | termios.INLCR | termios.IGNCR | termios.ISTRIP | termios.IXON)
        local &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
        characters = [*characters]
        characters[termios.VMIN], characters[termios.VTIME] = 1, 0
    return [inputs, outputs & ~termios.OPOST, control, local, *speeds, characters]


def is_foreground(terminal: int) -> bool:
    """Whether this process may change a terminal: it is not the one of its session, or no other job has it."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # not the controlling terminal: it has no jobs
        return True


def apply(terminal: int, settings: Settings) -> None:
    """Give a terminal settings, unless another job has it now or it is gone."""
    with suppress(OSError, termios.error):
        if is_foreground(terminal) and settings_of(terminal) != settings:
            termios.tcsetattr(terminal, termios.TCSANOW, settings)


def packed(settings: Settings) -> bytes:
    """Settings as text without NUL."""
    return json.dumps(settings).encode()


def give_back(terminal: int, text: bytes) -> None:
    """Give a terminal the settings in a text, if it still passes on what is typed: its copying process was killed.

    Whoever has changed it since, such as a shell with a line editor, is left alone.
    """
    with suppress(OSError, termios.error):
        before: Settings = json.loads(text)
        if settings_of(terminal) == passing(before, reads=True):
            termios.tcsetattr(terminal, termios.TCSANOW, before)
