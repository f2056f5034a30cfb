"""Tests whose steps run on a connection with a scripted backend, which is started before and closed after them."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

import pytest

from licet.mcp.shown_names import Naming

from .scripted_backend import Scene, ScriptedBackend


def scene_of(
    steps: Callable[[Scene], Coroutine[Any, Any, None]],
    era: str,
    backend: Callable[[], ScriptedBackend] = ScriptedBackend,
    names: Naming = "plain",
    **more: Any,
) -> Scene:
    """Run steps on a started connection."""

    async def run() -> Scene:
        scene = Scene(backend(), names)
        await scene.start(era, **more)
        await steps(scene)
        await scene.connection.close()
        return scene

    return asyncio.run(run())


ERAS = ("2025", "2026")
both_eras = pytest.mark.parametrize("era", ERAS)


def played(era: str = "", **about: Any) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """A test whose steps run on a started connection of this era; without one, of each."""

    def made(steps: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        known = {name: one for name, one in signature(steps).parameters.items() if name != "scene"}

        @wraps(steps)
        def test(**given: Any) -> None:
            wanted = {name: given[name] for name in known}
            scene_of(lambda scene: steps(scene, **wanted), era or given["era"], **about)

        needed = known if era else {**known, "era": Parameter("era", Parameter.KEYWORD_ONLY)}
        parameters = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in needed.values()]
        vars(test)["__signature__"] = Signature(parameters)
        return test if era else both_eras(test)

    return made
