"""`licet gateway`: an MCP server over stdio, in front of the servers of a workspace, under one manifest."""

import asyncio
import os
import select
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
from msgspec.structs import replace

from licet.assemble.policy_problems import other_workspace, tools_without_server
from licet.assemble.review import state_directory, straight
from licet.assemble.states import DirectoryState, State
from licet.cli.discovery import check_setting, named_or_found, require_trust
from licet.cli.limits import OBSERVING_HOURS, REPORT_LINE_BYTES
from licet.cli.options import (
    FILE,
    Setting,
    duration,
    json_option,
    secrets_option,
    setting_options,
    sound_manifest,
    state_of_policy,
    state_option,
    task_option,
)
from licet.cli.output import fail
from licet.core.algebra.scope import visible
from licet.core.policy.manifest import Manifest
from licet.core.policy.servers import servers_of
from licet.declare import Tool
from licet.errors import LicetError
from licet.mcp.shown_names import Naming, naming
from licet.policy_files.policy_paths import policy_root
from licet.policy_files.policy_source import PolicySource
from licet.sandbox.programs.early_supervisor import supervisor_ahead
from licet.sandbox.programs.supervisor_client import Supervisor

if TYPE_CHECKING:
    from licet.assemble.recording import CallRecording
    from licet.gateway.observation import Observation


def serving_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of the commands that serve a client."""
    for option in reversed(
        (
            click.argument("manifest", type=FILE, required=False),
            click.option("--session", metavar="ID", help="Continue this session: its budgets, approvals and receipts."),
            task_option,
            state_option("Keep state in this directory, or in a database that many nodes share."),
            click.option(
                "--accepted",
                is_flag=True,
                help="Refuse unless this policy and its lock were accepted with `licet trust`, although it is named.",
            ),
            secrets_option,
            setting_options,
            json_option,
        )
    ):
        function = option(function)
    return function


class _Duration(click.ParamType):  # type: ignore[type-arg]
    """A time such as `30m`, above nothing and up to a day."""

    name = "duration"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Parse a duration."""
        try:
            found = duration(value)
        except (OverflowError, ValueError):  # more digits than a number may have
            found = timedelta.max
        if not found:
            self.fail(f"`{value}` is no duration: expected 30m, 8h or 90s", param, ctx)
        if found > timedelta(hours=OBSERVING_HOURS):
            self.fail(f"`{value}` is longer than {OBSERVING_HOURS}h: a gateway observes for a day at most", param, ctx)
        return found


@click.command(name="gateway")
@click.option("--observe", is_flag=True, help="Let calls through that the policy refuses, and note them. Needs --for.")
@click.option("--for", "observe_for", metavar="DURATION", type=_Duration(), help="Observe for so long: 30m, 8h.")
@click.option("--open", "is_open", is_flag=True, help="With --observe: run the servers without walls, too.")
@serving_options
def command(
    observe: bool,
    observe_for: timedelta | None,
    is_open: bool,
    manifest: Path | None,
    session: str | None,
    task: str,
    state: State | None,
    accepted: bool,
    secrets: Path | None,
    setting: Setting,
) -> None:
    """Serve the tools of MCP servers to one client, over standard input and output, under a manifest.

    The servers are those of `servers:` in licet.yaml, as `licet lock` pinned them. Each runs behind walls made of its
    `grants`. A client sees the tools that MANIFEST admits; every call is checked, recorded, and answered by its server.
    A change of the policy is in force once a start would take it; until then every call is refused. Reports go to
    standard error. One connection is one session. With --accepted, secrets that `licet init --mcp` keeps
    for this policy are found without --secrets. `${workdir}` is the directory of the policy (the parent
    of `.licet/`), wherever the client starts this, unless --workdir names another.

    Under a policy with `flow:`, --task is what the user asked for, if who starts this knows it. A client may say it
    only with `flow: {task_through_client: true}`. A session that --session names counts as resumed: it may have read
    all kinds of text before.

    \b
      licet gateway research.yaml
      licet gateway research.yaml --session s-42

    \b
    To try out a policy (all receipts say so; walls stay unless --open is given too):
      licet gateway research.yaml --observe --for 30m

    \b
    In the configuration of a client:
      {"mcpServers": {"governed":
        {"command": "licet", "args": ["gateway", "/path/to/research.yaml", "--accepted"]}}}
    """
    if observe and observe_for is None:
        raise click.UsageError("--observe needs --for DURATION, such as `--for 30m`: it does not enforce the policy")
    if not observe and (observe_for is not None or is_open):
        raise click.UsageError("--for and --open are options of --observe")
    ready = click.get_current_context().with_resource(supervisor_ahead())
    policy, place, setting, source = served_policy(manifest, state, setting, observe=observe, accepted=accepted)
    if not policy.servers:
        hint = other_workspace(policy, tools_without_server(policy)) or "`licet serve` offers tools"
        fail(f"{policy.origin.file}: there are no `servers:` to stand in front of; {hint}")
    secrets = secrets or (own_secrets(policy) if accepted else None)
    names = naming(policy.servers, "prefixed" if policy.gateway_names == "prefixed" else _plain(policy))
    observed = None
    if observe_for is not None:
        from licet.gateway.observation import observation, opening_lines, unobservable

        if why := unobservable(policy.organisations, is_open=is_open):
            fail(why)
        seconds, where = observe_for.total_seconds(), {"workdir": setting.workdir, "secrets_file": secrets}
        for line in opening_lines(policy.origin.file, _spelled(observe_for), is_open=is_open):
            report(line)
        try:
            observed = asyncio.run(observation(policy, seconds, is_open=is_open, report=report, **where))
            observed = replace(observed, recording=_recording(policy, place, setting))
        except LicetError as wrong:
            fail(str(wrong))
    try:
        serve(policy, place, names, session, secrets, setting, source, observed=observed, ready=ready, task=task)
    finally:
        if observed is not None and observed.recording is not None:
            _report_recording(observed.recording)


def own_secrets(policy: Manifest) -> Path | None:
    """The file in which `licet init --mcp` keeps the secrets of this policy; None if there is none, or no server's."""
    from licet.clients.entries import SECRETS_FILE

    file = state_directory(policy_root(Path(policy.origin.file))) / SECRETS_FILE
    wanted = any(server.references for server in servers_of(policy.servers).values())
    if not wanted or not file.is_file():
        return None
    report(f"secrets are taken from {file}")
    return file


def _recording(policy: Manifest, state: State, setting: Setting) -> "CallRecording | None":
    """A recording of what the calls use, in the state directory; None if it cannot be made."""
    from licet.assemble.recording import RECORDINGS, record_calls

    folder = state.path if isinstance(state, DirectoryState) else state_directory(policy_root(Path(policy.origin.file)))
    path = folder / RECORDINGS / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-gateway-{os.getpid()}.jsonl"
    try:
        return record_calls(policy, path, workdir=setting.workdir, source="gateway")
    except OSError as wrong:
        report(f"no recording is made: {path}: {wrong.strerror}")
        return None


def _report_recording(recording: "CallRecording") -> None:
    recording.close()
    if recording.failed:
        report(f"the recording {recording.path} is incomplete: {recording.failed}")
    elif recording.lines:
        report(f"recorded in {recording.path}: `licet learn {recording.path}` drafts the policy for it")
    else:
        recording.path.unlink(missing_ok=True)


def _spelled(time: timedelta) -> str:
    hours, seconds = divmod(int(time.total_seconds()), 3600)
    parts = ((hours, "h"), (seconds // 60, "m"), (seconds % 60, "s"))
    return " ".join(f"{number}{unit}" for number, unit in parts if number)


def _plain(policy: Manifest) -> Any:
    return "plain" if policy.gateway_names == "plain" else ""


def served_policy(
    manifest: Path | None,
    state: State | None,
    setting: Setting,
    *,
    observe: bool = False,
    accepted: bool = False,
) -> tuple[Manifest, State, Setting, PolicySource]:
    """The manifest to serve under, the state, the working directory, and where it is from; exits if it cannot be used.

    Clients start their servers anywhere, often in `/`. So `${workdir}` is the directory of the policy if none is named,
    and not the one that this process happens to be in. With `observe` the policy need not be as it was locked. With
    `accepted` a policy that was named must be on the trust list too.
    """
    named = replace(named_or_found(manifest, "MANIFEST"), demanded=accepted)
    workdir = setting.workdir or straight(policy_root(named.path))
    if not workdir.is_dir():
        fail(f"--workdir {workdir}: there is no such directory")
    setting = replace(setting, workdir=workdir)
    check_setting(named, setting)
    source = PolicySource(  # before the first look into a file, so that no later change is missed
        named.path,
        setting.workspace,
        setting.personality,
        setting.organisation,
        must_be_accepted=named.must_be_accepted,
        by_hand=named.by_hand,
        as_locked=not observe,
    )
    policy = sound_manifest(named.path, setting)
    require_trust(named, policy)
    if policy.lock_problem is not None and not observe:
        fail(str(policy.lock_problem))
    report(f"${{workdir}} is {straight(workdir)}")
    return policy, state or state_of_policy(named.path), setting, source


def serve(
    policy: Manifest,
    state: State,
    names: Naming,
    session: str | None,
    secrets: Path | None,
    setting: Setting,
    source: PolicySource,
    own_tools: Sequence[Tool] | None = None,
    own_tools_of: Callable[[Manifest], Sequence[Tool]] | None = None,
    observed: "Observation | None" = None,
    ready: Supervisor | None = None,
    task: str = "",
) -> None:
    """Serve one client over standard input and output, until it closes its end."""
    from licet.gateway.connection import serve_stdio
    from licet.gateway.gateway import InvalidSession, gateway_servers, new_session

    try:
        backend = gateway_servers(
            policy,
            state,
            session=new_session() if session is None else session,
            report=report,
            workdir=setting.workdir,
            secrets_file=secrets,
            own_tools=own_tools,
            observed=observed,
            ready=ready,
            task=task,
            is_resumed=session is not None,
            source=source,
            own_tools_of=own_tools_of,
        )
        asyncio.run(serve_stdio(backend, names, report))
    except InvalidSession as wrong:
        raise click.BadParameter(str(wrong), param_hint="--session") from None
    except LicetError as wrong:
        fail(str(wrong))


def report(line: str) -> None:
    """Tell the operator something. Standard output belongs to the client.

    A line that nobody has room for is dropped: a client that does not read standard error must not stop the gateway.
    """
    if sys.stderr is not None and _has_room(sys.stderr):  # None if it was closed
        text = f"licet: {visible(line)}".encode()[:REPORT_LINE_BYTES].decode(errors="ignore")
        print(text, file=sys.stderr, flush=True)


def _has_room(stream: TextIO) -> bool:
    """Whether a line can be written without waiting. A pipe with any room has room for a page."""
    try:
        return bool(select.select([], [stream.fileno()], [], 0)[1])
    except (OSError, ValueError):  # it is no file, or closed
        return True
