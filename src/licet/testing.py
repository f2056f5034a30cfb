"""Memory backends, canned answers and a gate for the tests of your tools. See docs/testing.md.

    from licet.testing import Answer, MemoryGate

    gate = MemoryGate(forecast, http={"https://api.weather.gov/oslo": Answer.json({"rain": True})})
    assert gate.call(forecast, city="oslo").value == "rain"

`decision` asks a policy file about one use or call of a tool, without running it:

    assert decision(".licet/licet.yaml", "forecast", "network:https:get@api.weather.gov").verdict == "allow"

With `pytest_plugins = ["licet.testing"]` in `conftest.py`, tests have a fixture `gate` that makes such gates, and the
examples of policies run as tests.
"""

from licet.assemble.examples import decision
from licet.assemble.memory_gate import MemoryGate, PreparedApprover
from licet.backends.approvals.terminal import MemoryApprover
from licet.backends.budgets import MemoryBudgets
from licet.backends.files.memory import MemoryFiles
from licet.backends.http_memory import Answer, MemoryHttp
from licet.backends.kv import MemoryKv
from licet.backends.memory import MemoryClock, MemoryLedger
from licet.backends.secrets import MemorySecrets
from licet.guard.execution import Command, Finished
from licet.guard.people import Answered, Question
from licet.guard.ports import Exchange
from licet.sandbox.programs.memory import MemoryProcesses

__all__ = [
    "Answer",
    "Answered",
    "Command",
    "Exchange",
    "Finished",
    "MemoryApprover",
    "MemoryBudgets",
    "MemoryClock",
    "MemoryFiles",
    "MemoryGate",
    "MemoryHttp",
    "MemoryKv",
    "MemoryLedger",
    "MemoryProcesses",
    "MemorySecrets",
    "PreparedApprover",
    "Question",
    "decision",
]

pytest_plugins = ("licet.surfaces.pytest_plugin",)  # pytest reads this when it loads `licet.testing` as a plugin
