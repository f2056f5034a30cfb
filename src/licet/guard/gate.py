"""The gate: tools under a manifest, with their ports. It opens sessions, and can be reloaded and frozen."""

import asyncio
import inspect
import itertools
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from msgspec.structs import replace

from licet.core.algebra.rules import Capability, Use
from licet.core.algebra.scope import visible
from licet.core.algebra.set import CapabilitySet, Rules
from licet.core.decision.decision import Deny
from licet.core.decision.request import Approval, Ground, Request
from licet.core.decision.validate import Misfit
from licet.core.policy.layer import Layer, Rule
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import StandingApproval
from licet.core.values import Origin
from licet.declare import Tool
from licet.errors import ManifestError, Refused, RegistrationRefused
from licet.guard.availability import AvailabilityChecks
from licet.guard.bind import BoundContext
from licet.guard.deadlines import CURRENT, StoreDeadline
from licet.guard.execution import ToolCall, Warms
from licet.guard.facts import GateFacts
from licet.guard.freezing import FreezeWatch, OperatorKey, freeze_act, freeze_state, keep_act, thaw_act, waited_for
from licet.guard.grant import Grant, Observer
from licet.guard.held_paths import Protect
from licet.guard.import_path import WritableImports
from licet.guard.limits import MOST_OF_A_CLAIM, STORE_SECONDS
from licet.guard.memory import Memories
from licet.guard.ports import NotStanding, Ports, Unavailable, free_after_fork
from licet.guard.registration import MODES, OnMisfit, Packages, Registered, RegisteredTools, register
from licet.guard.session import Session

# Compares tools with the lock next to a manifest; the grounds say what is different.
Changed = Callable[[Manifest, Sequence[Tool]], Sequence[Ground]]
# Narrows a manifest by the organisation of this machine; raises `ManifestError` if that cannot be read.
Narrow = Callable[[Manifest], Manifest]
_OWN_STORAGE = ("storage:*:tool-private", "storage:*:session")  # in every ceiling


class BareGate(GateFacts):
    """A gate without defaults: every backend is passed in. `assemble.gate.Gate` picks them."""

    _finds_standing: ClassVar[bool] = False  # whether it searches for a standing approval if it is given none
    _reports: ClassVar[bool] = True  # whether `reload` raises with the tools that do not fit

    def __init__(
        self,
        manifest: Manifest,
        tools: Iterable[Tool],
        ports: Ports,
        *,
        protect: Protect,
        packages: Packages,
        changed: Changed,
        narrow: Narrow,
        workdir: str,
        home: str,
        pin: str | None = None,
        on_misfit: OnMisfit = "refuse",
        observers: Sequence[Observer] = (),
        imports: WritableImports = "refuse",
        strict: bool = False,
        standing_approval: str | None = None,
    ) -> None:
        self.standing_approval = standing_approval
        self.tools = tuple(tools)
        for tool in self.tools:
            if not isinstance(tool, Tool):
                raise TypeError(f"expected tools declared with `@tool`, found {type(tool).__name__}")
        for observer in observers:
            if not callable(observer) or inspect.iscoroutinefunction(observer):
                raise TypeError("an observer is a plain function of one event: a coroutine would never run")
        if on_misfit not in MODES:
            raise ValueError(f"expected `on_misfit` to be `refuse`, `narrow` or `deny`, found `{on_misfit}`")
        if ports.clock is None:
            raise RuntimeError("a gate needs a clock: give its backends one")
        self.ports = ports
        self.clock = ports.clock
        self.workdir, self.home = workdir, home
        self.pin, self.on_misfit = pin, on_misfit
        self.observers = tuple(observers)
        self.protect = protect
        self.packages = packages
        self.changed = changed
        self.narrow = narrow
        self.imports: WritableImports = imports  # what to do about a grant to write where this process imports from
        self.strict = strict  # whether text in arguments that is not tied to what a tool declares refuses the tool
        self._frozen = ""
        self.ended, self.running, self.agreed = set(), set(), {}
        self.watch = FreezeWatch(self)
        self.checks = AvailabilityChecks()
        self.memories = Memories()
        self._loading = free_after_fork(threading.RLock())  # reloads wait for each other, so the last one stays
        self._number_receipts()
        self.reload(manifest)

    def session(self, id: str, *, task: str = "", tainted: str = "") -> Session:  # noqa: A002
        """Open a session, or continue one: `async with gate.session("s-42", task="…") as session`.

        `task` is what the user said, and nothing else: policies with `flow:` compare arguments with it. `tainted` says
        why the model may have read untrusted text before, such as that its conversation is resumed.
        """
        session = Session(self, id)
        if task or tainted or self._policy.flow is not None:
            memory = session.remembering()
            memory.begin(task)
            if tainted:
                memory.taint(visible(tainted)[:MOST_OF_A_CLAIM])
        return session

    async def warm(self) -> None:
        """Start the processes of walled tools now, so that the first call of each does not wait for them."""
        sandbox = self.ports.sandbox
        if not isinstance(sandbox, Warms):
            return
        session = self.session("warm")
        for registered in self.policy.tools.values():
            reach = registered.reach
            if registered.ready and reach is not None and reach.level not in (None, "native"):
                grant = Grant(session.request(registered.tool.name), reach, self.policy.digest, (), _ask_nobody)
                context = BoundContext(session, registered, self.ports, grant)
                work = ToolCall(registered.tool, {}, registered.seconds, registered.limits)
                await sandbox.warm(reach.level, work, context)

    def reload(self, manifest: Manifest) -> None:
        """Use another manifest for all later calls. A running call keeps its own, and older approvals are void.

        The manifest is in force even if this raises `RegistrationRefused` with the tools that do not fit it, as
        building the gate does: their calls are denied. If the manifest cannot be used, or differs from its lock, every
        call is denied. An argument that is not a Manifest raises `TypeError` and changes nothing. Concurrent reloads
        run one after another.
        """
        if not isinstance(manifest, Manifest):
            raise TypeError(f"expected a Manifest, as `load_manifest` returns it, found {type(manifest).__name__}")
        with self._loading:
            self._reload(manifest)

    def withdraw(self, why: Ground, manifest: Manifest | None = None) -> None:
        """Deny all later calls for a reason, until a manifest is loaded again; older approvals are void.

        For who finds that the policy in force is not that of its files any more. `manifest` is what they say now, if
        that is known, and is never used.
        """
        with self._loading:
            now = manifest or self.manifest
            policy = RegisteredTools(now, now.digest, {}, unusable=why.text, grounds=(why,))
            self._switch(self.manifest, policy)

    def _reload(self, manifest: Manifest) -> None:
        at_build = not hasattr(self, "_policy")
        if self.pin is not None and manifest.digest != self.pin:
            text = f"the manifest is {manifest.digest}, but {self.pin} is pinned"
            fix = f"review it with `licet diff`, then pin {manifest.digest}"
            raise Refused(Deny(Request(manifest.agent), (Ground("MANIFEST_CHANGED", text, manifest.origin, fix),)))
        if self.pin is not None:
            manifest = replace(manifest, pinned="Gate(pin=…)")
        manifest = self._with_standing(manifest)
        # Building and reloading refuse the same: with `deny`, tools may misfit, but none may be there twice.
        refuses = self.on_misfit != "deny" or len({tool.name for tool in self.tools}) < len(self.tools)
        try:
            manifest = self.narrow(manifest)
            self._check_lock(manifest)
            policy = self._register(manifest, refuse=at_build and refuses)
        except BaseException as error:
            if not at_build:  # the old manifest may allow more than this one
                found = error.decision.rules[0].text if isinstance(error, Refused) else type(error).__name__
                if isinstance(error, ManifestError) and error.problems:
                    found = str(error.problems[0])
                why = f"the manifest that was loaded last cannot be used: {found}"
                self._switch(manifest, RegisteredTools(manifest, manifest.digest, {}, unusable=why))
            raise
        if at_build:
            self.manifest, self._policy, self._flow = manifest, policy, policy.flow
            return
        self._switch(manifest, policy)
        if policy.misfits and refuses and self._reports:
            raise RegistrationRefused(policy.misfits)

    def _with_standing(self, manifest: Manifest) -> Manifest:
        """The manifest with the standing approval of its deletes that this gate was given, if that counts now."""
        if manifest.standing is not None or manifest.standing_problem:
            manifest = replace(manifest, standing=None, standing_problem="")
        if manifest.approvals.delete != "manifest" or not (self.standing_approval or self._finds_standing):
            return manifest
        store = self.ports.standing
        if store is None:
            return replace(manifest, standing_problem="these backends have no standing approvals")
        seconds = min(STORE_SECONDS, manifest.limits.get("wall_seconds", STORE_SECONDS))
        before = CURRENT.set(CURRENT.get() or StoreDeadline(seconds))  # a first call must not wait longer for its gate
        try:
            found = store.find(self.standing_approval, manifest.digest, manifest.approvals)
        except NotStanding as why:
            return replace(manifest, standing_problem=str(why))
        finally:
            CURRENT.reset(before)
        return replace(manifest, standing=found)

    def stands(self, standing: StandingApproval) -> bool:
        """Whether a standing approval that a policy of this gate has still counts."""
        return self.ports.standing is not None and self.ports.standing.stands(standing)

    def renew_standing(self) -> None:
        """Decide later calls without a standing approval that has ended, or with one given since. Before each call.

        A gate that searches for one by itself may run for days: the person gives it when the first call was refused.
        """
        if self._policy.unusable:  # what is not in force is not loaded again by the way
            return
        manifest = self._policy.manifest
        standing = manifest.standing
        if standing is None and not (manifest.standing_problem and self._finds_standing):
            return
        found = False
        if self.ports.standing is not None:
            with suppress(NotStanding):
                wanted = None if standing is None else standing.id
                self.ports.standing.find(wanted, self.manifest.digest, self.manifest.approvals)
                found = True
        if found is (standing is not None):
            return
        with self._loading, suppress(RegistrationRefused):  # misfits were reported when the gate was built
            if self._policy.manifest is manifest:  # no other thread was first
                self._reload(self.manifest)

    def _register(self, manifest: Manifest, *, refuse: bool, parent: RegisteredTools | None = None) -> RegisteredTools:
        return register(
            manifest,
            self.tools,
            self.ports,
            self.protect,
            workdir=self.workdir,
            home=self.home,
            narrow=self.on_misfit == "narrow",
            packages=self.packages,
            imports=self.imports,
            refuse=refuse,
            strict=self.strict,
            parent=parent,
        )

    def _check_lock(self, manifest: Manifest) -> None:
        """Refuse a manifest, or tools, that differ from the lock next to the manifest."""
        if (locked := manifest.lock_problem) is not None:
            ground = Ground("MANIFEST_CHANGED", f"found {locked.found} in its lock", locked.origin, locked.hint)
            raise Refused(Deny(Request(manifest.agent), (ground,)))
        if grounds := self.changed(manifest, self.tools):
            raise Refused(Deny(Request(manifest.agent), tuple(grounds)))

    def _switch(self, manifest: Manifest, policy: RegisteredTools) -> None:
        self.reloaded = self.clock.now().timestamp()
        self.manifest, self._policy = manifest, policy
        if policy.flow != self._flow and not policy.unusable:  # what was read cannot be labelled again
            self._flow = policy.flow
            self.memories.forget()
        self._forget()

    @property
    def misfits(self) -> tuple[Misfit, ...]:
        """What admitted tools need and the manifest does not allow. Calls of these tools are denied."""
        return self.policy.misfits

    @property
    def not_admitted(self) -> tuple[str, ...]:
        """The tools of this gate that the manifest does not admit; their calls are `TOOL_NOT_IN_BUNDLE`."""
        known = self.policy.tools
        return tuple(tool.name for tool in self.tools if tool.name not in known or known[tool.name].reach is None)

    @property
    def policy(self) -> RegisteredTools:
        """The manifest in force, and the tools under it."""
        return self._policy

    def is_current(self, registered: Registered) -> bool:
        """Whether a call of this tool would be decided by the same policy now. Thread-safe, and never reloads."""
        tools = self._policy.tools
        try:
            frozen = self.frozen_for(self.manifest.agent, registered.tool.name)
        except Unavailable:  # its calls are refused, so no worker is kept for them
            return False
        return not frozen and self.follows(self._policy) and tools.get(registered.tool.name) is registered

    def follows(self, policy: RegisteredTools) -> bool:
        """Whether a policy is in force here, and nothing above this gate was reloaded. Thread-safe, never reloads."""
        return self._policy is policy

    @property
    def frozen(self) -> str:
        """Why this gate takes no calls; empty if it does. `Unavailable` if its store of freezes cannot be read."""
        return self.frozen_for(self.manifest.agent, "")

    def frozen_for(self, agent: str, tool: str) -> str:
        """Why calls of a tool by an agent are stopped; empty if they are not. `Unavailable` if nobody can know."""
        if self._frozen:
            return self._frozen
        freezes = self.ports.freezes
        return freezes.frozen(agent, tool) if freezes is not None else ""

    def freeze(
        self, why: str = "an operator has stopped all calls", *, agent: str | None = None, tool: str | None = None
    ) -> str:
        """Refuse every call of every gate on this state from now on, or those of one agent or of one tool.

        When this returns, no call begins any more, in no process. Those under way end at their next check, at the
        latest within a second. Returns the id of the freeze, which the ledger keeps; `thaw` ends it.
        """
        act = freeze_act(self.clock.now(), why, "gate", agent, tool)
        freezes = self.ports.freezes
        if freezes is None:  # only this gate can know of it
            if agent is not None or tool is not None:
                raise Unavailable("these backends have no store of freezes, so only all calls can be frozen")
            self._frozen = act.fact.why or "frozen"
        try:
            if freezes is not None:
                waited_for(lambda: freeze_state(freezes, self.ports.ledger, act))
        finally:  # a freeze that the ledger could not keep is in force all the same
            self._forget()
            self.watch.look(this=_this_task())
        return act.id

    def _forget(self) -> None:
        """Tell the sandbox to end its idle workers: they may have an outdated grant."""
        forget = getattr(self.ports.sandbox, "forget", None)
        if forget is not None:
            forget()

    def thaw(self, *ids: str, key: OperatorKey | None = None) -> None:
        """End freezes; all that are in force, if none is named. Where the state has operators, `key` is one of theirs.

        Raises `ActRefused` without that key, and if there is no such freeze.
        """
        self._frozen = ""
        freezes, ledger = self.ports.freezes, self.ports.ledger
        if freezes is None:
            return

        async def end() -> None:
            view = await freezes.view()
            if ids or view.freezes:
                await keep_act(freezes, ledger, thaw_act(ids, self.clock.now(), view, "gate", key))

        waited_for(end)

    def delegated(self, agent: str, allow: Rules) -> "BareGate":
        """A gate for another agent, limited to `allow` and to what this gate holds."""
        return _Delegated(self, agent, allow)

    def __repr__(self) -> str:
        return f"Gate({self.manifest.agent!r}, {len(self.tools)} tools, {self.manifest.digest[:19]}…)"

    def _number_receipts(self) -> None:
        """Begin new receipt ids. The random part is long enough that no two gates of a ledger share it."""
        self._receipts, self._numbers, self._process = f"r-{secrets.token_hex(6)}-", itertools.count(1), os.getpid()

    def next_receipt(self) -> str:
        """A new receipt id."""
        if self._process != os.getpid():  # a forked host would use the ids of its parent again
            self._number_receipts()
        return f"{self._receipts}{next(self._numbers)}"

    def made(self, receipt: str) -> bool:
        """Whether a receipt id is of this gate, as it is in this process."""
        return receipt.startswith(self._receipts)


class _Delegated(BareGate):
    """A gate for a delegate. It is reloaded and frozen together with its parent."""

    _reports = False  # a delegate may hold too little for some tools; only their calls are denied

    def __init__(self, parent: BareGate, agent: str, allow: Rules) -> None:
        self._parent = parent
        self._above = self._followed = parent.policy  # the parent policies for the next registration, and of `_policy`
        self._of = parent.manifest.agent
        # The name of an agent has no `>`, so a delegate cannot take the name, and with it the stores, of another agent
        # or of a delegate's delegate.
        self._agent = f"{parent.manifest.agent}>{agent}"
        if isinstance(allow, str):  # it would be read letter by letter
            raise TypeError('expected a list of rules, such as ["fs:read:/srv/data"], found a text')
        self._rules = [rule if isinstance(rule, Capability) else Capability(rule) for rule in (*allow, *_OWN_STORAGE)]
        self._denies = allow.deny if isinstance(allow, CapabilitySet) else ()
        super().__init__(
            self._narrowed(),
            parent.tools,
            parent.ports,
            workdir=parent.workdir,
            home=parent.home,
            on_misfit="narrow",
            observers=parent.observers,
            protect=parent.protect,
            packages=parent.packages,
            changed=_unchanged,  # the parent compares them
            narrow=_narrowed_above,
            imports=parent.imports,
        )
        self.running, self.watch = parent.running, parent.watch

    @property
    def policy(self) -> RegisteredTools:
        """The policy of the parent, narrowed by the delegation. It is computed anew after the parent was reloaded."""
        with self._loading:  # another thread must not see the old policy meanwhile
            above = self._parent.policy
            if above is not self._followed:
                self._above = above
                # A call gets here. A manifest that cannot be used denies it; the parent's `reload` raised the error.
                with suppress(Exception):
                    self.reload(self._narrowed())
                self._followed = above
            return self._policy

    def _register(self, manifest: Manifest, *, refuse: bool, parent: RegisteredTools | None = None) -> RegisteredTools:
        why, now = self._above.unusable, self._above.manifest.agent
        if not why and now != self._of:
            why = f"`{self._of}` has delegated this, and the manifest that was loaded last is of `{now}`"
        if why:
            return RegisteredTools(manifest, manifest.digest, {}, unusable=why)
        return super()._register(manifest, refuse=False, parent=self._above)

    def _with_standing(self, manifest: Manifest) -> Manifest:
        return manifest  # it has that of the parent

    def renew_standing(self) -> None:
        """As for the parent, whose policy this gate follows."""
        self._parent.renew_standing()

    def next_receipt(self) -> str:
        """A new receipt id, of the parent."""
        return self._parent.next_receipt()

    def made(self, receipt: str) -> bool:
        """Whether a receipt id is of the parent, or of any delegate of it."""
        return self._parent.made(receipt)

    def follows(self, policy: RegisteredTools) -> bool:
        """Whether a policy is in force here, and nothing above this gate was reloaded. Thread-safe, never reloads."""
        return self._policy is policy and self._parent.follows(self._followed)

    def frozen_for(self, agent: str, tool: str) -> str:
        """Why calls of a tool by an agent are stopped, here or above; empty if they are not."""
        return self._frozen or self._parent.frozen_for(agent, tool)

    def freeze(
        self, why: str = "an operator has stopped all calls", *, agent: str | None = None, tool: str | None = None
    ) -> str:
        """As for any gate, but of this delegate and its own delegates, unless `agent` names another one."""
        of = self.manifest.agent if agent is None and self.ports.freezes is not None else agent
        return super().freeze(why, agent=of, tool=tool)

    def _narrowed(self) -> Manifest:
        full = self._parent.manifest
        origin = Origin(f"delegate(agent={self._agent!r})", 0, 0)
        stated = tuple(Rule(rule, origin, "allow") for rule in self._rules)
        denied = tuple(Rule(rule, origin, "delegation.deny") for rule in self._denies)
        layer = Layer("delegation", f"the delegation to `{self._agent}`", origin, stated, denied)
        admissions = full.admissions
        if any(
            rule.domain == "tool" for rule in (*self._rules, *self._denies)
        ):  # without a rule on tools, every tool is allowed
            admissions = {
                name: admission for name, admission in admissions.items() if layer.allowed.has(f"tool:call:{name}")
            }
        own = full.project and replace(
            full.project,
            agent=self._agent,
            layers=(*full.project.layers, layer),
            admissions={name: one for name, one in full.project.admissions.items() if name in admissions},
            loaded=None,
        )
        layers = (*full.layers, layer)
        return replace(full, agent=self._agent, layers=layers, admissions=admissions, loaded=own, project=own)


def _this_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs here
        return None


async def _ask_nobody(approval: Approval, use: Use) -> None:
    raise RuntimeError("no call is running, so nobody is asked")


def _narrowed_above(manifest: Manifest) -> Manifest:
    return manifest  # the parent has narrowed it


def _unchanged(manifest: Manifest, tools: Sequence[Tool]) -> Sequence[Ground]:
    return ()
