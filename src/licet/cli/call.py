"""`licet call`: one tool call under a manifest.

Arguments are typed as `key=value` or `key:=json`, or come from a file with a JSON object.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from licet.assemble.backend_parts import LocalParts, secrets_file_problem
from licet.assemble.gate import (
    Backends,
    CommandGate,
    Gate,
    RefusingGate,
    run_in,
    terminal_approver,
    waiting_approver,
)
from licet.assemble.states import State
from licet.backends.approvals.requests import StoredRequest
from licet.cli.discovery import check_setting, complete_words, named_first, named_or_found, require_trust
from licet.cli.limits import ARGUMENT_FILE_BYTES
from licet.cli.missing_secrets import secret_advice
from licet.cli.options import (
    Setting,
    caller_options,
    json_option,
    open_session,
    read_sound,
    refuse,
    setting_options,
    show_new_session,
    sound_manifest,
    state_of_policy,
    with_secrets,
)
from licet.cli.output import misfit_document, print_report, result_document, show, show_lines, show_refusal
from licet.core.algebra.scope import Malformed, visible
from licet.core.decision.approval import approval_lines
from licet.core.policy.manifest import Manifest
from licet.core.policy.servers import tool_parts
from licet.core.policy.tool import ToolSpec
from licet.core.values import Origin, Problem, nearest
from licet.declare.decorator import WasmTool
from licet.declare.wasm import PYTHON
from licet.errors import ManifestError, Refused, RegistrationRefused
from licet.guard.ports import Question
from licet.guard.repeated_calls import ID_FORM, is_call_id
from licet.guard.result import Result
from licet.own_files import read_regular

_WORD = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(:?=)(.*)", re.DOTALL)


class BadArguments(ValueError):
    """Words that are not arguments."""


class BadFile(BadArguments):
    """A file that has no arguments."""


def typed_arguments(words: Iterable[str], file: str | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Parse arguments. A value is text if the schema takes text, and JSON otherwise."""
    arguments = {} if file is None else _from_file(file)
    for word in words:
        parts = _WORD.fullmatch(word)
        if parts is None:
            raise BadArguments(f"`{word[:80]}` is not an argument; expected `key=value` or `key:=json`")
        key, sign, text = parts.groups()
        if key in arguments:
            raise BadArguments(f"`{key}` is given twice")
        wanted = schema.get("properties", {}).get(key)
        if sign == "=" and (wanted is None or _takes_text(wanted, schema)):
            arguments[key] = text
        else:
            arguments[key] = _read(text, f"the value of `{key}`", wanted)
    return arguments


def _from_file(file: str) -> dict[str, Any]:
    try:
        data = (
            sys.stdin.buffer.read(ARGUMENT_FILE_BYTES + 1) if file == "-" else read_regular(file, ARGUMENT_FILE_BYTES)
        )
        if len(data) > ARGUMENT_FILE_BYTES:
            raise BadFile(f"{file} is larger than {ARGUMENT_FILE_BYTES} bytes")
        text = data.decode()
    except (OSError, ValueError) as error:
        if isinstance(error, BadFile):
            raise
        if file.lstrip().startswith("{"):
            raise BadFile("expected the name of a file, found JSON: pipe it in with `--args -`") from None
        if isinstance(error, UnicodeDecodeError):
            raise BadFile(f"{file} is not UTF-8 text") from None
        raise BadFile(f"cannot read {file}: {getattr(error, 'strerror', 'not a file name')}") from None
    try:
        found = _read(text, file)
    except BadArguments as wrong:
        raise BadFile(str(wrong)) from None
    if not isinstance(found, dict):
        raise BadFile(f"{file} does not contain a JSON object")
    return found


def _read(text: str, what: str, wanted: object = None) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_each_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        kind = wanted.get("type") if isinstance(wanted, dict) else None
        expected = f"JSON for a value of type {kind}" if isinstance(kind, str) else "JSON"
        why = f" ({error})" if isinstance(error, BadArguments) else ""
        raise BadArguments(f"{what} is not JSON{why}; expected {expected}") from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadArguments("a duplicate key")
    return found


def _no_number(word: str) -> NoReturn:
    raise BadArguments(f"{word} is not a JSON number")


def _takes_text(wanted: object, schema: Mapping[str, Any], depth: int = 0) -> bool:
    """Whether a schema accepts text. One without a type accepts anything."""
    if not isinstance(wanted, dict) or depth > 8:
        return True
    if isinstance(reference := wanted.get("$ref"), str):
        return _takes_text(schema.get("$defs", {}).get(reference.rpartition("/")[2]), schema, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in wanted:
            return any(_takes_text(one, schema, depth + 1) for one in wanted[key])
    if "enum" in wanted or "const" in wanted:
        return any(isinstance(one, str) for one in wanted.get("enum", [wanted.get("const")]))
    kind = wanted.get("type", "string")
    return "string" in ([kind] if isinstance(kind, str) else kind)


def _call_id(ctx: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    if given is not None and not is_call_id(given):
        raise click.BadParameter(f"expected {ID_FORM}", ctx, parameter)
    return given


@click.command(name="call")
@click.argument("words", metavar="[MANIFEST] [TOOL] [KEY=VALUE]...", nargs=-1, shell_complete=complete_words)
@click.option("--args", "file", metavar="FILE", help="Read arguments from a file with a JSON object; `-` is stdin.")
@caller_options("call")
@click.option(
    "--id",
    "call_id",
    metavar="ID",
    callback=_call_id,
    help="An id for the call: one that comes again within 24 hours gets the first result, and runs nothing.",
)
@click.option("--ask", is_flag=True, help="If the call needs approval, ask at this terminal.")
@click.option("--wait", is_flag=True, help="If the call needs approval, wait until `licet approvals` answers it.")
@click.option("--debug", is_flag=True, help="Also show what the tool printed, and its traceback, on stderr.")
@setting_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    file: str | None,
    session: str,
    purpose: str | None,
    task: str,
    call_id: str | None,
    secrets: Path | None,
    state: State | None,
    ask: bool,
    wait: bool,
    debug: bool,
    setting: Setting,
) -> None:
    """Call one tool under a manifest, with all checks of a call.

    The tools that the manifest names with `from:` are imported, so their code runs. A refusal is explained on stderr.
    MANIFEST is the policy in this directory if left out: .licet/licet.yaml, or licet.yaml. You must have accepted that
    one with `licet trust`.

    \b
      licet call                              # the tools that can be called
      licet call fetch_weather city=oslo
      licet call desk.yaml read_file path=notes/oslo.md
      licet call desk.yaml search_files pattern=rain ignore_case=true max_matches=5
      licet call desk.yaml http_post url=https://example.com json:='{"a": 1}'
      echo '{"city": "oslo"}' | licet call weather.yaml fetch_weather --args -
      licet call desk.yaml write_file path=drafts/a.md text=Rain --ask
      licet call desk.yaml write_file path=drafts/a.md text=Rain --wait

    \b
    KEY=VALUE is an argument:
      key=value    as text where the tool takes text, otherwise read as JSON
      key:=json    always read as JSON

    \b
    Under a policy with `flow:`, a session that has read text of others (a mail, a page)
    may use in some arguments only values that the task or a trusted result has.
    The task is what --task says:
      licet call desk.yaml send_mail to=dora@example.com --task "Write to dora@example.com"

    \b
    A secrets file has NAME=value lines, and only its owner may read it (chmod 600).

    \b
    Exit codes:
      0  the tool ran, and its value was printed: text as text, data as JSON
      1  refused, or the tool failed; or the files have errors
      2  bad command line
    """
    manifest, words = named_first(words)
    if words and "=" in words[0]:
        raise click.UsageError("Missing argument 'TOOL'.", ctx)
    named = named_or_found(manifest, "MANIFEST")
    check_setting(named, setting)
    if not words:
        _list_tools(named.path, setting)
        return
    tool, *arguments = words
    policy = sound_manifest(named.path, setting)
    require_trust(named, policy)
    if secrets is not None:
        _check_secrets(secrets)
    kept = with_secrets(state or state_of_policy(named.path), secrets)
    find_session = open_session(ctx, session, kept, policy.agent)
    parts = _approver(kept, ask=ask, wait=wait)
    gate = _gate(ctx, policy, Backends.of(kept, secrets_file=secrets, **parts), setting.workdir)
    schema: dict[str, Any] = next((known.schema for known in gate.tools if known.name == tool), {})
    try:
        given = typed_arguments(arguments, file, schema)
        gate.session(session)
    except BadArguments as wrong:
        hint = "--args" if isinstance(wrong, BadFile) else "KEY=VALUE"
        raise click.BadParameter(str(wrong), ctx, param_hint=hint) from None
    except ValueError as wrong:
        raise click.BadParameter(str(wrong), ctx, param_hint="--session") from None
    _build_ahead(gate, tool)
    show_new_session(ctx, session)
    try:
        result = run_in(gate, tool, given, find_session, purpose=purpose, task=task, id=call_id)
    except KeyboardInterrupt:
        text = f"interrupted: the call was ended; `licet receipts list{kept.option}` has its receipt"
        raise KeyboardInterrupt(text) from None

    def show_result(_: object) -> None:
        if debug and result.logs:
            show_lines((f"{visible(tool)} | {line}" for line in result.logs.rstrip("\n").split("\n")), err=True)
        if result.ok:
            _show_value(result)
        else:
            show_refusal(result, kept.option, _ways_out(result, policy, secrets))

    print_report(result_document(result), show_result)
    ctx.exit(0 if result.ok else 1)


def _build_ahead(gate: Gate, name: str) -> None:
    """Build what a tool for model-written Python needs, where people see that it takes time."""
    if any(isinstance(tool, WasmTool) and tool.module.file == PYTHON for tool in gate.tools if tool.name == name):
        from licet.cli.wasm import build_if_missing

        build_if_missing()


def _list_tools(path: Path, setting: Setting) -> None:
    """Print the tools that this agent may call, from their source: nothing is imported."""
    manifest = read_sound(path, setting)
    names = sorted(manifest.admissions)
    served = [name for name in names if tool_parts(name, manifest.servers) is not None]
    admitted = {name: manifest.tools.get(name) for name in names if name not in served}
    found = {"tools": _described(manifest, admitted), "server_tools": _described(manifest, served)}
    print_report(found, lambda _: _show_tools(manifest, admitted, served))


def _show_tools(manifest: Manifest, admitted: Mapping[str, ToolSpec | None], served: Sequence[str]) -> None:
    width = max(map(len, admitted), default=0)
    for name, spec in admitted.items():
        says = spec.description.partition("\n")[0] if spec is not None else ""
        show(f"{visible(name):<{width}}  {visible(says)}".rstrip())
    if served:
        show(f"`licet gateway` calls the tools of servers: {', '.join(map(visible, served))}", err=True)
    elif not admitted:
        show(f"{visible(manifest.agent)} may call no tool")


def _described(manifest: Manifest, names: Iterable[str]) -> dict[str, str | None]:
    return {name: spec.description if (spec := manifest.tools.get(name)) else None for name in names}


def _approver(state: State, *, ask: bool, wait: bool) -> LocalParts:
    """The approver for `--ask` and `--wait`. Without either, a request is stored and the call refused."""
    waiting = waiting_approver(state, _announce) if wait else None
    if ask:
        return {"approver": terminal_approver(state, waiting)}
    return {} if waiting is None else {"approver": waiting}


def _announce(question: Question, kept: StoredRequest, approve: str) -> None:
    """Print on stderr what the call waits for, and how to answer."""
    show(f"asks: `{visible(kept.request.tool)}` waits for a person: {visible(question.why)}", err=True, colour="yellow")
    show_lines(approval_lines(kept.request, kept.arguments), err=True)
    deny = approve.replace(" approve ", " deny ").replace(" --key FILE", "")
    show(f"  {'to approve':<14}{approve} in another terminal; to refuse, {deny}", err=True)


def _gate(ctx: click.Context, policy: Manifest, backends: Backends, workdir: Path | None) -> Gate:
    from licet.assemble.importing import imported_tools

    try:
        # Other tools that do not fit are no reason to refuse this call.
        return CommandGate(policy, imported_tools(policy), backends, workdir=workdir, on_misfit="deny")
    except ManifestError as wrong:
        refuse(list(wrong.problems))
    except Refused as refused:  # the lock next to the policy differs: the call is refused, and leaves a receipt
        return RefusingGate(refused, policy, backends, workdir=workdir)
    # The policy is too large to compute the grants of its tools, or one of them reaches the code of a server.
    except RegistrationRefused as refused:
        misfits = refused.misfits
        found = {"misfits": list(map(misfit_document, misfits))}
        print_report(found, lambda _: show_lines(map(str, misfits), err=True))
        ctx.exit(1)
    except Malformed as wrong:
        raise click.UsageError(f"no rule can contain the working or home directory: {wrong}") from None


def _check_secrets(file: Path) -> None:
    """Exit if a file is not fit for secrets, before any code of a tool runs."""
    if wrong := secrets_file_problem(file):
        found, expected = "a file that is not fit for secrets", "`NAME=value` lines that only their owner can read"
        refuse([Problem(Origin(str(file), 1, 1), found, expected, wrong)])


def _show_value(result: Result) -> None:
    """Print a value. Text is printed unchanged in a pipe; on a terminal, invisible characters are escaped."""
    if isinstance(result.value, str):
        text = result.value
        if sys.stdout.isatty():
            text = "\n".join(map(_seen, text.split("\n")))
    else:
        text = _readable(json.dumps(result.value, indent=2, ensure_ascii=False))
    # Not with click, which removes escape sequences in a pipe.
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    if result.truncated:
        show("the value was longer than the limits allow; this is the beginning", err=True, colour="yellow")


def _seen(line: str) -> str:
    return "\t".join(map(visible, line.split("\t")))


def _readable(text: str) -> str:
    """JSON with letters unchanged, and invisible characters as JSON escapes."""
    return "".join(char if char == "\n" or visible(char) == char else json.dumps(char)[1:-1] for char in text)


def _ways_out(result: Result, policy: Manifest, secrets: Path | None) -> Iterator[str]:
    """Advice that only applies at the command line."""
    known = policy.admissions.keys()
    if result.tool not in known and (near := nearest(result.tool, known)):
        yield f"  did you mean  {near}"
    if result.reason == "LEDGER_UNAVAILABLE":
        yield "  or            keep receipts elsewhere with `--state DIR`"
    yield from secret_advice(result, secrets)
