"""Which prompts of a coding agent are words of its person, so that they belong to the task of a session?

Agents fire the same event for text that a model wrote: the prompt of a subagent, the news that one has ended, a prompt
that was planned for later. And a run without a person gets a prompt that a script may have put together from texts of
others. No payload says which it is, so this looks at the process of the agent. What cannot be seen counts as no.
"""

import os
from collections.abc import Iterator, Sequence

from licet.hooks.agent_event import AgentEvent
from licet.hooks.limits import MOST_PARENTS, WORDS_BYTES

# Why each session is tainted from its begin: no event tells of instruction files, nor of what a resumed one has read.
READS_ALONE = "the agent has read instructions and files before any event"

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "busybox"})
_TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console")
# Agents report in such tags, as prompts or inside of one: that a line or a subagent has ended, what a teammate wrote.
_REPORTS = ("<task-notification", "<teammate-message", "<subagent_notification", "<system-reminder", "<system_notif")


def may_be_of_person(event: AgentEvent) -> bool:
    """Whether the event itself leaves open that a person wrote its prompt."""
    text = event.prompt.strip().lower()
    is_report = text.startswith("<") or any(tag in text for tag in _REPORTS)
    return bool(text) and not event.subagent and event.alone and not is_report


def is_typed(client: int, headless: Sequence[str], prompt: str) -> bool:
    """Whether the agent whose hook is the process `client` has a person at its terminal, who has typed this prompt.

    `headless` are the words of a command line that make the agent run without one. A prompt that stands in the command
    line was not typed into the agent: a script may have written it.
    """
    try:
        agent = next(_agents(client), None)
        if agent is None or not _has_terminal(agent):
            return False
        words = _words(agent)[1:]
    except (OSError, ValueError):
        return False
    typed = prompt.strip()
    return not any(_is_headless(word, headless) or typed in word or word.strip() == typed for word in words)


def _agents(client: int) -> Iterator[int]:
    """The process that started the hook: the nearest one that is no shell with a line to run."""
    process = client
    for _ in range(MOST_PARENTS):
        process = _parent(process)
        if process <= 1:
            return
        words = _words(process)
        is_line = os.path.basename(words[0]) in _SHELLS and any(one[:1] == "-" and "c" in one for one in words[1:3])
        if not is_line:
            yield process


def _parent(process: int) -> int:
    with open(f"/proc/{process}/stat", "rb") as file:
        return int(file.read(WORDS_BYTES).rpartition(b")")[2].split()[1])


def _words(process: int) -> list[str]:
    with open(f"/proc/{process}/cmdline", "rb") as file:
        raw = file.read(WORDS_BYTES)
    if not raw or len(raw) == WORDS_BYTES:
        raise ValueError("a command line that is not seen as a whole")
    return [os.fsdecode(word) for word in raw.removesuffix(b"\0").split(b"\0")]


def _has_terminal(process: int) -> bool:
    ends = [os.readlink(f"/proc/{process}/fd/{number}") for number in (0, 1)]
    return all(end.startswith(_TERMINALS) for end in ends)


def _is_headless(word: str, headless: Sequence[str]) -> bool:
    """Whether a word of a command line is one of these; `-cp` is `-c` and `-p`."""
    if word.startswith("-") and not word.startswith("--"):
        return any(one[1:] in word for one in headless if len(one) == 2 and one[0] == "-")
    return word.partition("=")[0] in headless
