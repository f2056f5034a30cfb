"""`licet diff`: what agents can reach more or less of than before. Compares meanings, not texts.

The two versions are files, directories with all their manifests, or git revisions. Of a revision, links, submodules
and large files are left out. Without a policy file an agent would look gone, and without a workspace or a lock it would
look smaller: so a policy file that is left out is an error, and so is a directory around it.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace

from licet.backends.git_tree import GitError, LeftOut, Revision, export_revision, find_revision
from licet.cli.discovery import named_or_found
from licet.cli.limits import FAILURE_REASONS_SHOWN, LEFT_OUT_PATHS_SHOWN
from licet.cli.options import FILE, PLACES, Setting, json_option, organisations_above, read_sound
from licet.cli.output import (
    check_target,
    counted,
    organisation_document,
    organisation_line,
    print_report,
    shortened,
    show,
    show_annotation,
    wants_json,
    write_out,
)
from licet.core.algebra.scope import visible
from licet.core.policy.lock_changes import still_version
from licet.core.policy.manifest import Manifest
from licet.core.review.changes import Change, Changes, Side
from licet.core.review.diff import diff_agents, joined
from licet.core.review.risk import RISK_LEVELS, Risk, at_least, riskiest
from licet.core.review.surface import Surface
from licet.core.values import Origin
from licet.policy_files.load import manifests_in
from licet.policy_files.policy_paths import LOCK_FILE, POLICY_DIRECTORY, SUFFIXES, WORKSPACE_FILE, workspace_root
from licet.source.imports import source_candidates

_RISKS = tuple(f"risk:{level}" for level in RISK_LEVELS[:-1])


def fail_on_option(*words: str, default: str, text: str) -> Callable[[Any], Any]:
    """Add `--fail-on` with these words and `risk:LEVEL`."""
    names = click.Choice((*words, *_RISKS))
    return click.option("--fail-on", type=names, default=default, show_default=True, metavar="WHAT", help=text)


def failing_changes(fail_on: str, changes: Mapping[str, Changes]) -> Iterator[str]:
    """What makes changes a failure, for each agent: something grew, anything changed, or something of a risk grew."""
    for key, each in changes.items():
        if fail_on == "grown" and each.grown:
            yield f"{key}: {len(each.grown)} grown"
        elif fail_on == "changed" and each:
            yield f"{key}: {counted(len(each.grown) + len(each.shrunk) + len(each.changed), 'difference')}"
        for change in each.grown if fail_on.startswith("risk:") else ():
            if _counts(fail_on, change.risk):
                subject = "" if change.tool is None or f"`{change.tool}`" in change.text else f"{change.tool}: "
                yield f"{key}: {subject}{change.text} ({change.risk.level} risk: {change.risk.label})"


def failing_tools(fail_on: str, surfaces: Mapping[str, Surface]) -> Iterator[str]:
    """The tools, commands and servers of each agent whose risk makes a surface a failure."""
    for key, shown in surfaces.items():
        tools = [*shown.riskiest_first, *filter(None, (shown.commands,))]
        failing = [(tool.name, tool.risk) for tool in tools if _counts(fail_on, tool.risk)]
        if not failing and _counts(fail_on, shown.risk):
            failing = [("a server", shown.risk)]
        yield from (f"{key}: {name} ({risk.level} risk: {risk.label})" for name, risk in failing)


def exit_code(fail_on: str, failing: Iterable[str], *, silent: bool = False) -> int:
    """The exit code of a review. What made it fail goes to the standard error, unless the output has it already."""
    found = list(dict.fromkeys(failing))
    for line in () if silent else found[:FAILURE_REASONS_SHOWN]:
        show(f"licet: --fail-on {fail_on}: {line}", err=True, colour="red")
    if found[FAILURE_REASONS_SHOWN:] and not silent:
        show(f"licet: --fail-on {fail_on}: and {len(found) - FAILURE_REASONS_SHOWN} more", err=True, colour="red")
    return 1 if found else 0


def _counts(fail_on: str, risk: Risk) -> bool:
    level = fail_on.partition(":")[2]
    return bool(level) and at_least(risk, level)


class Version(Struct, frozen=True):
    """The agents of one version by key, such as `research.yaml`, and how to write the places in it."""

    agents: dict[str, Manifest]
    prefix: str = ""  # the private directory that its files were written to
    title: str = ""  # what to write for that, such as `HEAD~1:`
    left_out: tuple[LeftOut, ...] = ()

    def worded(self, text: str) -> str:
        """A text with the places of this version as a reader knows them."""
        return text.replace(self.prefix, self.title) if self.prefix else text


class Compared(Struct, frozen=True):
    """What `licet diff` compares."""

    old: Version
    new: Version

    @property
    def single(self) -> bool:
        """Whether one agent is compared with one other, whatever their files are called."""
        return len(self.old.agents) == len(self.new.agents) == 1 and self.old.agents.keys() == self.new.agents.keys()

    def worded(self, short: Callable[[str], str]) -> Callable[[str], str]:
        """A function that makes the paths in a text short."""
        return lambda text: short(self.new.worded(self.old.worded(text)))


SIGNS: dict[Side, tuple[str, str]] = {"grown": ("+", "red"), "shrunk": ("−", "green"), "changed": ("~", "yellow")}
SIDES: tuple[Side, ...] = ("grown", "shrunk", "changed")


@click.command(name="diff")
@click.argument("words", metavar="OLD [NEW] [MANIFEST]", nargs=-1, required=True)
@fail_on_option(
    "grown",
    "changed",
    "none",
    default="grown",
    text="Exit with 1 if something grew (`grown`), if anything changed (`changed`), if something grew that has this "
    "risk or a higher one (`risk:critical`, `risk:high`, `risk:medium`, `risk:low`), or never (`none`).",
)
@click.option(
    "--by",
    type=click.Choice(("tool", "agent", "workspace")),
    default="tool",
    show_default=True,
    help="Every change of each agent, one line for each agent, or every change once with its agents.",
)
@click.option("--old-workspace", metavar="FILE", type=FILE, help="The workspace of OLD, if not next to it.")
@click.option("--new-workspace", metavar="FILE", type=FILE, help="The workspace of NEW, if not next to it.")
@click.option("--workspace", metavar="FILE", type=FILE, help="One workspace for both.")
@click.option("--personality", metavar="FILE", type=FILE, help="A second policy file for both.")
@click.option("--workdir", metavar="DIR", type=FILE, help="The value of `${workdir}` in both.")
@json_option
@click.option("--github", is_flag=True, help="Print annotations for GitHub Actions.")
@click.option("--html", metavar="FILE", type=FILE, help="Write a page for a report to a file; `-` is standard output.")
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    fail_on: str,
    by: str,
    old_workspace: Path | None,
    new_workspace: Path | None,
    workspace: Path | None,
    personality: Path | None,
    workdir: Path | None,
    github: bool,
    html: Path | None,
) -> None:
    """Show exactly what grew and what shrank between two versions of an agent, riskiest first.

    The command compares what tools and `licet run` can reach, and what decides about it: classes, levels, approvals,
    budgets, limits, argument rules, descriptions, schemas. What the policy allows and no tool needs today counts too,
    as `the ceiling allows …`. Moving a rule to another file or writing it differently is no difference, and neither is
    what the organisation of this machine says, which is no part of a policy. Each version is read with the `licet.yaml`
    next to it. NEW is the policy in this directory if left out.

    \b
    OLD and NEW are files, directories or git revisions:
      licet diff old.yaml new.yaml
      licet diff ../before .                     all manifests of two directories
      licet diff HEAD                            what is not committed yet
      licet diff main HEAD research.yaml         one manifest in two revisions

    \b
      +  grew: calls can do more, or fewer checks stop them
      −  shrank
      ~  changed in another way

    \b
    Exit codes:
      0  nothing grew (see --fail-on)
      1  something grew, or the files have errors
      2  bad command line
    """
    if sum((wants_json(), github, html is not None)) > 1:
        raise click.UsageError("--json, --github and --html exclude each other")
    if html is not None:
        check_target(html, ".html")
    settings = (
        Setting(old_workspace or workspace, personality, workdir, alone=True),
        Setting(new_workspace or workspace, personality, workdir, alone=True),
    )
    above = organisations_above()
    with compared_versions(words, settings) as versions:
        changes = diff_agents(versions.old.agents, versions.new.agents)
        short = versions.worded(shortened(workdir))
        if github:
            _annotate(changes, versions)
        elif html is not None:
            _write_page(html, versions, changes, short)
        else:

            def text(_: object) -> None:
                _show(changes, by, short, headed=not versions.single)
                if above:
                    show(f"not in it: {organisation_line(above)} narrows both on this machine", err=True)
                for key, version in _same_versions(versions).items():
                    show(f"{key}: {still_version(version)}", err=True, colour="yellow")

            print_report({**_document(versions, changes), **organisation_document(above)}, text)
        failing = map(short, failing_changes(fail_on, changes))
        # The text ends with how much grew and changed, on the standard error too, and the JSON has all of it.
        code = exit_code(fail_on, failing, silent=not (fail_on.startswith("risk:") or github or html))
    ctx.exit(code)


def _document(versions: Compared, changes: dict[str, Changes]) -> dict[str, Any]:
    """The changes as plain data: of one agent as they are, of several by the name of their file."""

    def one(key: str) -> dict[str, Any]:
        digests = {
            side: version.agents[key].digest if key in version.agents else None
            for side, version in (("old", versions.old), ("new", versions.new))
        }
        same = {"same_version": _same_versions(versions)[key]} if key in _same_versions(versions) else {}
        return {**digests, **same, **_placed(changes[key], versions.worded(str)).document()}

    keys = list(changes)
    return one(keys[0]) if versions.single else {"agents": {key: one(key) for key in keys}}


def _same_versions(versions: Compared) -> dict[str, str]:
    """The agents whose policy changed while the version that it states did not, with that version."""
    old, new = versions.old.agents, versions.new.agents
    return {
        key: new[key].version
        for key in new
        if key in old
        and new[key].version
        and new[key].version == old[key].version
        and new[key].digest != old[key].digest
    }


def _placed(changes: Changes, say: Callable[[str], str]) -> Changes:
    """The changes with their places as a reader knows them."""

    def placed(change: Change) -> Change:
        origin = replace(change.origin, file=say(change.origin.file)) if change.origin else None
        return replace(change, origin=origin)

    return Changes(*(tuple(map(placed, getattr(changes, side))) for side in SIDES))


def _annotate(changes: dict[str, Changes], versions: Compared) -> None:
    for key, each in changes.items():
        for change in _placed(each, versions.worded(str)).grown:
            kind = "error" if change.risk.level == "critical" else "warning"
            title = f"licet diff: {change.risk.level} risk"
            show_annotation(kind, change.origin, title, f"{key}: {_text(replace(change, origin=None))}")


def _write_page(file: Path, versions: Compared, changes: dict[str, Changes], short: Callable[[str], str]) -> None:
    from licet.core.review.surface import surface
    from licet.map.pages import diff_page

    now = {key: surface(manifest) for key, manifest in versions.new.agents.items()}
    write_out(file, diff_page(changes, now, short, (versions.old.title, versions.new.title)))


def _show(changes: dict[str, Changes], by: str, short: Callable[[str], str], *, headed: bool) -> None:
    if by == "tool" and not headed:
        show_changes(next(iter(changes.values())), short)
        return
    if by == "workspace":
        for side in SIDES:
            for change, keys in joined(changes, side):
                show(f"{SIGNS[side][0]} {short(_text(change))}  [{', '.join(keys)}]", colour=SIGNS[side][1])
    else:
        for key, each in sorted(changes.items(), key=lambda item: riskiest(c.risk for c in item[1].grown).rank):
            if each or by == "agent":
                show(f"agent {key}: {summary_of((each,))}")
            for side in SIDES if by == "tool" else ():
                _show_side(each, side, short)
    show(summary_of(changes.values()), err=True)


def show_changes(changes: Changes, short: Callable[[str], str]) -> None:
    """Print what grew, shrank and changed, one line each; `short` shortens the paths in them."""
    for side in SIDES:
        _show_side(changes, side, short)
    show(summary_of((changes,)), err=True)


def _show_side(changes: Changes, side: Side, short: Callable[[str], str]) -> None:
    sign, colour = SIGNS[side]
    for change in getattr(changes, side):
        show(f"{sign} {short(_text(change))}", colour=colour)


def summary_of(changes: Iterable[Changes]) -> str:
    """How much grew, shrank and changed, and the riskiest thing that grew."""
    every = list(changes)
    counts = [f"{number} {side}" for side in SIDES if (number := sum(len(getattr(one, side)) for one in every))]
    grown = [change.risk for one in every for change in one.grown]
    risk = f"; riskiest: {riskiest(grown)}" if grown else ""
    return ", ".join(counts) + risk if counts else "no difference"


def _text(change: Change) -> str:
    named = change.tool is None or change.text.startswith(f"`{change.tool}`")
    subject = "" if named else f"{change.tool}: "
    return subject + change.text + _place(change.origin)


def _place(origin: Origin | None) -> str:
    return f"  ({origin})" if origin else ""


# The versions ---------------------------------------------------------------------------------------------------------


def note_left_out(revision: str, left_out: Iterable[LeftOut]) -> None:
    """List the left-out files that look like policy or source."""
    named = [visible(one.path) for one in left_out if one.path.lower().endswith((*SUFFIXES, ".py", ".wasm"))]
    if named:
        listed = ", ".join(named[:LEFT_OUT_PATHS_SHOWN]) + (" …" if named[LEFT_OUT_PATHS_SHOWN:] else "")
        show(f"licet: links and large files of {revision} are left out: {listed}", err=True, colour="yellow")


def refuse_left_out(revision: str, left_out: Iterable[LeftOut], needed: set[str], folder: str | None) -> None:
    """End the command if something was left out that the policies of either version need.

    `needed` has paths inside the repository. `folder` is the directory whose manifests are compared, if it is one.
    """
    around = {str(above) for path in needed for above in PurePosixPath(path).parents}
    wrong = [one for one in left_out if one.path in needed or one.path in around or _may_be_manifest(one, folder)]
    if wrong:
        lines = [f"{revision}:{visible(one.path)} {one.why}" for one in wrong[:LEFT_OUT_PATHS_SHOWN]]
        more = [f"and {len(wrong) - LEFT_OUT_PATHS_SHOWN} more"] if wrong[LEFT_OUT_PATHS_SHOWN:] else []
        why = "what the policies of that revision allow is not known without it"
        hint = "; name one MANIFEST if it is no part of one" if folder is not None else ""
        raise click.ClickException("\n".join((*lines, *more, why + hint)))


def needed_at(path: PurePosixPath, manifest: Manifest | None = None) -> Iterator[str]:
    """The files that a policy file consists of, and where its tools are found; paths inside the repository."""
    root = PurePosixPath(workspace_root(Path(path.parent)))
    yield str(path)
    for place in (root, root / POLICY_DIRECTORY):
        yield from (str(place / name) for name in (WORKSPACE_FILE, LOCK_FILE))
    for reference, _ in manifest.sources.values() if manifest is not None else ():
        yield from (str(PurePosixPath(one)) for one in source_candidates(reference, Path(root)))


def _may_be_manifest(one: LeftOut, folder: str | None) -> bool:
    if folder is None or not one.may_be_policy or not one.path.lower().endswith(SUFFIXES):
        return False
    return str(PurePosixPath(one.path).parent) in (folder, str(PurePosixPath(folder, POLICY_DIRECTORY)))


def manifests_of(directory: Path) -> tuple[Path, ...]:
    """The manifests in a directory; ends the command if it cannot be read."""
    try:
        return manifests_in(directory)
    except OSError as error:
        raise click.ClickException(f"{directory} cannot be read: {error.strerror}") from None


@contextmanager
def compared_versions(words: Sequence[str], settings: tuple[Setting, Setting]) -> Iterator[Compared]:
    """Read the two versions that the words of a command line name. Files of revisions exist until the end."""
    revisions, files = _sorted_words(words)
    with tempfile.TemporaryDirectory(prefix="licet-diff-") as folder:
        os.chmod(folder, 0o700)
        if not revisions:
            yield Compared(*_of_files(files, settings))
            return
        path = files[0] if files else Path()
        sides = [
            _of_revision(one, path, Path(folder, str(number)), settings[number]) for number, one in enumerate(revisions)
        ]
        if len(sides) == 1:
            sides.append(_of_path(path, settings[1]))
        _refuse_left_out(sides, revisions, path)
        if not any(side.agents for side in sides):
            raise click.UsageError(f"there is no manifest of an agent at {files[0] if files else 'this place'}")
        yield Compared(*sides)


def _sorted_words(words: Sequence[str]) -> tuple[list[Revision], list[Path]]:
    """The revisions among the words, and the files. Revisions come first; a name that is both is a file."""
    context = click.get_current_context()
    revisions: list[Revision] = []
    rest = list(words)
    while rest and len(revisions) < 2:
        path = FILE.convert(rest[0], None, context)
        is_file = os.path.lexists(path)
        if is_file and path.suffix.lower() in SUFFIXES:
            break
        try:
            found = find_revision(rest[0], Path.cwd())
        except GitError as wrong:
            text = f"`{rest[0]}` cannot be looked up in the repository here: {wrong}"
            raise click.ClickException(text) from None
        if found is None and not is_file and path.suffix.lower() not in SUFFIXES and "/" not in rest[0]:
            raise click.UsageError(f"`{rest[0]}` is neither a file nor a git revision here", context)
        if found is None:
            break
        if is_file:
            note = f"licet: `{rest[0]}` is a file and a git revision, and is taken as the file"
            show(note, err=True, colour="yellow")
            break
        revisions.append(found)
        rest.pop(0)
    files = [FILE.convert(word, None, context) for word in rest]
    most = 1 if revisions else 2
    if len(files) > most:
        text = f"`{files[most]}` is one too many: give OLD and NEW, or one or two git revisions and a MANIFEST"
        raise click.UsageError(text, context)
    return revisions, files


def _of_files(files: list[Path], settings: tuple[Setting, Setting]) -> tuple[Version, Version]:
    old, new = files[0], files[1] if files[1:] else None
    if old.is_dir() and (new is None or new.is_dir()):
        return _of_path(old, settings[0]), _of_path(new or Path(), settings[1])
    new = named_or_found(new, "NEW").path
    before, after = read_sound(old, settings[0]), read_sound(new, settings[1])
    return Version({str(new): before}), Version({str(new): after})


def _of_path(path: Path, setting: Setting, key: str = "") -> Version:
    """The agent of a file, or all agents of a directory; none if there is no such path."""
    if path.is_dir():
        return Version({str(file.relative_to(path)): read_sound(file, setting) for file in manifests_of(path)})
    return Version({key or str(path): read_sound(path, setting)} if os.path.lexists(path) else {})


def _of_revision(revision: Revision, path: Path, folder: Path, setting: Setting) -> Version:
    """The same path in a revision, whose files are written to a private directory."""
    inside = _inside(path, revision)
    root = workspace_root(inside.parent) if _is_file(path) else inside
    everything = root == Path() or setting.workspace or setting.personality
    target = folder / "files"
    target.mkdir(mode=0o700, parents=True)
    try:
        left_out = export_revision(revision, folder, "" if everything else root.as_posix(), target)
    except GitError as wrong:
        raise click.ClickException(f"{revision.name} cannot be read: {wrong}") from None
    note_left_out(revision.name, left_out)
    here, meta = f"{target}{os.sep}", click.get_current_context().meta
    meta[PLACES] = here, f"{revision.name}:"
    workspace, personality = (_moved(one, revision, target) for one in (setting.workspace, setting.personality))
    moved = replace(setting, workspace=workspace, personality=personality)
    found = _of_path(target / inside, moved, str(path))
    del meta[PLACES]
    return Version(found.agents, here, f"{revision.name}:", left_out)


def _is_file(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.is_dir()


def _inside(path: Path, revision: Revision) -> Path:
    """A path as seen from the top of a repository. Links are not followed: a revision may have other ones."""
    named, top = Path(os.path.abspath(path)), os.path.realpath(revision.top)
    for above in (*reversed(named.parents), named):
        if os.path.realpath(above) == top:
            return named.relative_to(above)
    raise click.UsageError(f"`{path}` is not in the repository of {revision.name}")


def _refuse_left_out(sides: Sequence[Version], revisions: Sequence[Revision], path: Path) -> None:
    """End the command if something was left out that a policy of either version needs."""
    inside = PurePosixPath(_inside(path, revisions[0]).as_posix())
    needed = set(needed_at(inside if _is_file(path) else inside / WORKSPACE_FILE))
    for side in sides:
        for key, manifest in side.agents.items():
            needed.update(needed_at(inside if _is_file(path) else inside / key, manifest))
    folder = None if _is_file(path) else str(inside)
    for revision, side in zip(revisions, sides, strict=False):
        refuse_left_out(revision.name, side.left_out, needed, folder)


def _moved(path: Path | None, revision: Revision, target: Path) -> Path | None:
    """The same file in a revision, if it is in the repository."""
    try:
        return None if path is None else target / _inside(path, revision)
    except click.UsageError:
        return path
