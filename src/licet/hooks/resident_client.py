"""The program that a coding agent starts for each event, and for each shell line: a thin client of the resident.

It runs as `PYTHON -I -S …/resident_client.py hook AGENT EVENT`, or `… line TICKET TEXT`. It decides nothing. Every
failure before a call is a refusal: for all agents that is the exit code 2 with a text. A failure of another event never
stops the person.

The interpreter compiles this file at each start, and loads the modules that do the work as they were compiled before.
"""

import sys
from posix import _exit, write

# The events that decide nothing, by agent. What is not listed here refuses when it fails, events of tomorrow too.
TELLING = {
    "claude": "SessionStart UserPromptSubmit PostToolUse PostToolUseFailure SubagentStart SubagentStop SessionEnd"
    " PostToolBatch Notification UserPromptExpansion Stop StopFailure PreCompact PostCompact PreModelSwitch"
    " PostModelSwitch PermissionDenied Setup TeammateIdle TaskCreated TaskCompleted Elicitation ElicitationResult"
    " ConfigChange WorktreeCreate WorktreeRemove InstructionsLoaded CwdChanged FileChanged DirectoryAdded"
    " MessageDisplay",
    "codex": "SessionStart UserPromptSubmit PostToolUse SubagentStart SubagentStop SessionEnd Stop PreCompact"
    " PostCompact",
    "gemini": "SessionStart BeforeAgent AfterTool SessionEnd AfterAgent BeforeModel AfterModel BeforeToolSelection"
    " Notification PreCompress",
    "copilot": "postToolUse postToolUseFailure userPromptSubmitted sessionStart sessionEnd subagentStart subagentStop"
    " agentStop errorOccurred notification preCompact",
    "opencode": "tool.execute.after chat.message session.created session.idle session.deleted permission.asked",
    "cursor": "postToolUse postToolUseFailure afterShellExecution afterMCPExecution afterFileEdit afterTabFileEdit"
    " afterAgentResponse afterAgentThought beforeSubmitPrompt sessionStart sessionEnd subagentStop preCompact stop",
}
REFUSAL = 2
NOT_RUN = 125  # what `licet run` reports for a command that was not started
_USAGE = "expected `hook AGENT EVENT` or `line TICKET TEXT`"


def known_name(agent: str) -> str:
    """The name of an agent in our tables."""
    return "claude" if agent == "claude-code" else agent


def decides(agent: str, event: str) -> bool:
    """Whether a failure of this event is a refusal."""
    return event not in TELLING.get(agent, "").split()


def _main(words: list[str]) -> int:
    what, agent, event = words if len(words) == 3 else ("", "", "")
    agent = known_name(agent)
    failure = NOT_RUN if what == "line" else REFUSAL
    if what == "hook" and not decides(agent, event):
        failure = 0
    try:
        sys.path.append(__file__.rpartition("/licet/hooks/")[0])
        if what == "hook":
            from licet.hooks.resident_hook import hook

            return hook(agent, event)
        if what == "line":
            from licet.hooks.resident_line import line

            return line(agent, event)
        why = _USAGE
    except BaseException as wrong:
        why = f"{type(wrong).__name__}: {wrong}"
    if failure:
        write(2, f"licet: refused, since the hook failed: {why}\n".encode("utf-8", "backslashreplace"))
    return failure


if __name__ == "__main__":
    code = REFUSAL
    try:
        code = _main(sys.argv[1:])
    finally:
        _exit(code)  # without the teardown of the interpreter, which costs a tenth of its start
