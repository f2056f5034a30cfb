"""Approver of a hook: the coding agent itself asks its person, in its own prompt, about this one call.

licet sees no answer. It sees that the agent makes the call or does not, so whoever opens a call with this approver must
tell the agent to ask, and close the call as one that never ran if it was not made. Such an answer is nobody's
signature: a policy with `quorum` or `keys` gets none from here.
"""

from licet.guard.ports import ASKED_IN_AGENT, Answered, Approver, ApproverFunction, Question, answer_of


class AgentPrompt:
    """Leaves each question to the prompt of a coding agent, unless the approver `first` has an answer.

    One object is for one call: `asked` has the questions that the agent must ask, each of which counts as approved.
    """

    def __init__(self, first: Approver | ApproverFunction | None = None) -> None:
        self.asked: list[Question] = []
        self._first = first

    @property
    def verifies(self) -> bool:
        """Whether the approver `first` checks signatures. The agent's prompt never does."""
        return getattr(self._first, "verifies", False)

    def load_code(self) -> None:
        load = getattr(self._first, "load_code", None)
        if load is not None:
            load()

    async def ask(self, question: Question) -> Answered:
        """The answer of `first`; if it has none, and no signature is needed, that of the agent's person."""
        answer = Answered("absent")
        if self._first is not None:
            found = await answer_of(self._first, question)
            answer = found if isinstance(found, Answered) else Answered(found, ("callback",))
        if answer.answer != "absent" or question.signed or question.optional:
            return answer
        self.asked.append(question)
        # `asks_again`: the session must not remember it. The acts of the question are of this call alone.
        return Answered("approved", (ASKED_IN_AGENT,), asks_again=True)
