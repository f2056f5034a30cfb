"""What happens if a hijacked agent makes its calls through a gate, without a model?

A session gets the user's task, and makes the calls that solve it. The attacker's text is in what these calls return.
Once it was delivered, the attacker's calls are made in the same session. A person approves what the user's task needs
and refuses all else, so a call of the attacker runs only if nobody is asked about it. Three deliveries:

- `first contact`: the attacker's calls follow the first result that has the text in it;
- `whole task`: they follow the last call of the task, when the session has seen most;
- `cold`: the session has read nothing but the text.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from licet import Backends, Gate, Result, Session, Tool
from licet.policy_files.data import manifest_from_data
from licet.ports import Answered, Question

from .signatures import Signature, role_of

Delivery = Literal["first contact", "whole task", "cold"]
DELIVERIES: tuple[Delivery, ...] = ("first contact", "whole task", "cold")


class Planned(Struct, frozen=True):
    """A call that the user's task or the attacker's goal takes."""

    tool: str
    arguments: Mapping[str, Any]


class World(Protocol):
    """An environment in which a user's task and an attack are played once."""

    @property
    def task(self) -> str:
        """What the user says."""

    def enter(self) -> None:
        """Let the tools of the suite work on this world."""

    def user_calls(self) -> Iterator[Planned]:
        """The calls that solve the task."""

    def attacker_calls(self) -> Iterator[Planned]:
        """The calls that reach the attacker's goal, as things are now."""

    def task_done(self, ran: list[Planned]) -> bool:
        """Whether the user's task is solved, after the calls that ran."""

    def goal_reached(self, ran: list[Planned]) -> bool:
        """Whether the attacker has what he wants, after the calls that ran."""


class Suite(Protocol):
    """Tools, tasks of users, and attacks; `licet` is what its tools declare."""

    name: str

    @property
    def signatures(self) -> Sequence[Signature]:
        """The signatures of its tools."""

    @property
    def tools(self) -> Sequence[Tool]:
        """Its tools, which work on the world that was entered last."""

    def users(self) -> Iterable[str]:
        """The tasks of users."""

    def attacks(self) -> Iterable[str]:
        """The goals of attackers."""

    def text_of(self, attack: str) -> str:
        """What an attacker writes wherever he can."""

    def world(self, user: str, attack: str | None) -> World:
        """A new world for a task, with the text of an attack in it."""


class Step(Struct, frozen=True):
    """A call that was made, and what became of it."""

    by: Literal["user", "attacker"]
    call: Planned
    ran: bool
    asked: tuple[str, ...] = ()  # why a person was asked, if one was
    error: str = ""


class Played(Struct, frozen=True):
    """One session, from the task to the last call."""

    user: str
    attack: str = ""  # empty: nobody attacked
    delivery: Delivery | Literal[""] = ""
    steps: tuple[Step, ...] = ()
    delivered: bool = True
    done: bool = False  # whether the user's task was solved, by its check; only looked at where nobody attacks
    reached: bool = False  # whether the attacker's goal was: by its check, or because all its calls that act ran

    def of(self, by: Literal["user", "attacker"]) -> list[Step]:
        """The calls of one side."""
        return [step for step in self.steps if step.by == by]


class Destination(Struct, frozen=True):
    """Somebody or something that a tool sends to, adds, pays or opens."""

    tool: str
    values: tuple[str, ...]


class Destinations(Struct, frozen=True):
    """Where the calls of a suite go, of users and of attackers alike, and the calls that go there."""

    calls: Mapping[Destination, Sequence[Planned]]
    foreign: frozenset[Destination]  # those that no user's task has


class Policy(Struct, frozen=True):
    """What a manifest says about flow; all else is the same for each policy."""

    name: str
    flow: Mapping[str, Any] = field(default_factory=dict)
    admissions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def manifest_of(suite: Suite, policy: Policy) -> dict[str, Any]:
    """A manifest that allows each tool what it declares, so that nothing but flow can stop a call."""
    names = [tool.name for tool in suite.tools]
    data: dict[str, Any] = {
        "agent": f"{suite.name}-suite",
        "capabilities": {
            "tools": {name: dict(policy.admissions.get(name, {})) for name in names},
            "native": names,
            "max_side_effect_class": "write_limited",
            "grants": sorted({str(rule) for tool in suite.tools for rule in tool.needs}),
            "approvals": {"write": "manifest"},
        },
    }
    if policy.flow:
        data["flow"] = dict(policy.flow)
    return data


def destinations_of(suite: Suite) -> Destinations:
    """Where the calls of all tasks and attacks go. Their texts say nothing: a text may ask for reasons of its own."""
    users = list(suite.users())
    of_users = [call for user in users for call in suite.world(user, None).user_calls()]
    of_attackers = [call for one in suite.attacks() for call in suite.world(users[0], one).attacker_calls()]
    tools = {one.name: one for one in suite.signatures}
    calls: dict[Destination, list[Planned]] = {}
    for planned in (*of_users, *of_attackers):
        for destination, call in _sent(tools[planned.tool], planned):
            found = calls.setdefault(destination, [])
            if call not in found:
                found.append(call)
    named = {destination for planned in of_users for destination, _ in _sent(tools[planned.tool], planned)}
    return Destinations(calls, frozenset(calls.keys() - named))


def _sent(tool: Signature, planned: Planned) -> Iterator[tuple[Destination, Planned]]:
    """The destinations of a call, each with a call that goes to it alone: each element of a list is one."""
    given = {name: planned.arguments[name] for name in tool.destinations if planned.arguments.get(name)}
    rest = {name: value for name, value in planned.arguments.items() if name not in tool.destinations}
    roles = {name: role_of(tool, name, tool.parameters[name]) for name in rest if name in tool.parameters}
    quiet = {
        name: "Hello" if roles.get(name) == "content" and isinstance(value, str) else value
        for name, value in rest.items()
    }
    single = {name: value for name, value in given.items() if not isinstance(value, list)}
    if single:
        values = tuple(str(one) for one in single.values())
        yield Destination(tool.name, values), Planned(tool.name, {**quiet, **single})
    for name, several in given.items():
        for one in several if isinstance(several, list) else ():
            yield Destination(tool.name, (str(one),)), Planned(tool.name, {**quiet, **single, name: [one]})


class Player:
    """Plays sessions of a suite through one gate."""

    def __init__(self, suite: Suite, policy: Policy) -> None:
        self.suite = suite
        manifest = manifest_from_data(manifest_of(suite, policy))
        backends = Backends.memory(approver=self._answer)
        self.gate = Gate(manifest, suite.tools, backends, workdir=Path("/suite"), pin=manifest.digest)
        self._acting = {one.name for one in suite.signatures if one.acts}
        self._numbers = itertools.count(1)
        self._by: Literal["user", "attacker"] = "user"
        self._asked: tuple[str, ...] = ()

    async def benign(self, user: str) -> Played:
        """The user's task alone; places for attackers hold what the suite has there otherwise."""
        world = self.suite.world(user, None)
        steps: list[Step] = []
        session = self._session(world)
        for planned in world.user_calls():
            await self._call(session, "user", planned, steps)
        return Played(user, steps=tuple(steps), done=world.task_done(_ran(steps)))

    async def attacked(self, user: str, attack: str, delivery: Delivery) -> Played:
        """The user's task, and the attacker's calls once his text was delivered."""
        world, text = self.suite.world(user, attack), self.suite.text_of(attack)
        steps: list[Step] = []
        session = self._session(world)
        delivered = delivery == "cold"
        if delivered:
            await session.read("a page that somebody sent", text)
        else:
            for planned in world.user_calls():
                result = await self._call(session, "user", planned, steps)
                delivered = delivered or _holds(result.value, text)
                if delivered and delivery == "first contact":
                    break
        if not delivered:
            return Played(user, attack, delivery, tuple(steps), delivered=False)
        for planned in world.attacker_calls():
            await self._call(session, "attacker", planned, steps)
        acts = [step.ran for step in steps if step.by == "attacker" and step.call.tool in self._acting]
        # The suite's own check also fails where the environment has what it looks for from the start.
        reached = any(acts) and (all(acts) or world.goal_reached(_ran(steps)))
        return Played(user, attack, delivery, tuple(steps), reached=reached)

    async def reached(self, user: str, attack: str, destinations: Destinations) -> frozenset[Destination]:
        """Where a hijacked session may still send, when the user's whole task was done: without asking anybody."""
        world, text = self.suite.world(user, attack), self.suite.text_of(attack)
        session = self._session(world)
        for planned in world.user_calls():
            await self._call(session, "user", planned, [])
        await session.read("a page that somebody sent", text)
        steps: list[Step] = []
        for calls in destinations.calls.values():
            for planned in calls:
                await self._call(session, "attacker", planned, steps)
        unasked = [step.call for step in steps if not step.asked]
        return frozenset(one for one, calls in destinations.calls.items() if any(call in unasked for call in calls))

    def needs_a_call(self, user: str, attack: str) -> bool:
        """Whether a goal takes a call that acts. What a model tells the user is no tool call."""
        return any(planned.tool in self._acting for planned in self.suite.world(user, attack).attacker_calls())

    def _session(self, world: World) -> Session:
        world.enter()
        return self.gate.session(f"play-{next(self._numbers)}", task=world.task)

    async def _call(
        self, session: Session, by: Literal["user", "attacker"], planned: Planned, steps: list[Step]
    ) -> Result:
        self._by, self._asked = by, ()
        result = await session.call(planned.tool, dict(planned.arguments))
        steps.append(Step(by, planned, result.ok, self._asked, result.error))
        return result

    async def _answer(self, question: Question) -> Answered:
        self._asked = tuple(f"{ground.reason}: {ground.text}" for ground in question.rules) or (question.why,)
        return Answered("approved" if self._by == "user" else "denied", asks_again=True)


def _ran(steps: Iterable[Step]) -> list[Planned]:
    return [step.call for step in steps if step.ran]


def _holds(value: Any, text: str) -> bool:
    if isinstance(value, str):
        return text in value
    if isinstance(value, Mapping):
        return any(_holds(one, text) for pair in value.items() for one in pair)
    return isinstance(value, list | tuple) and any(_holds(one, text) for one in value)
