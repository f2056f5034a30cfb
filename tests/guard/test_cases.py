"""The cases of the YAML files in `cases`."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from cli.cases import Case, Differs
from guard.cases import Desk, all_cases
from licet.guard.ports import Budgets


def tried(case: Case, here: Path, **known: Any) -> None:
    """Do the steps of a case."""

    async def steps() -> None:
        async with AsyncExitStack() as opened:
            desk = Desk(here, {**case.known, **known}, opened)
            for step in case.steps:
                place = f"{case.file.name}:{step.line}: {case.name}\n  {step.text}"
                try:
                    await desk.step(step)
                except Differs as differs:
                    what, expected, found = differs.args
                    told = f"{place}\n  {what}: {expected!r}\n  found: {found!r}"
                    raise pytest.fail.Exception(told, pytrace=False) from None
                except Exception as error:
                    error.add_note(place)
                    raise

    asyncio.run(steps())


@pytest.mark.parametrize("case", all_cases("calls.yaml", "asking.yaml", "misfits.yaml", "repeated.yaml"))
def test_case(case: Case, tmp_path: Path) -> None:
    tried(case, tmp_path)


@pytest.mark.parametrize("case", all_cases("budgets.yaml"))
def test_case_with_each_store_of_budgets(case: Case, budgets: Budgets, tmp_path: Path) -> None:
    tried(case, tmp_path, budgets=budgets)
