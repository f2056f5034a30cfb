"""What other programs run or trust: names of files and directories that git, editors, shells, CI and agents act on.

A program that may write one of these can make a program outside of its walls start whatever it likes. `licet learn`
leaves such a write to a person, and `licet init --preset coding` denies it.
"""

from msgspec import Struct

from licet.core.algebra.scope import inside

_AGENT = "hooks, servers and commands of an agent that you start elsewhere"
_INSTRUCTIONS = "instructions that an agent follows elsewhere"
_EDITOR = "your editor starts what its settings name"
_CI = "your CI runs it, often with secrets"
_HOOKS = "it names programs that run at each commit"
_SHELL = "your shell runs it when you enter the directory"
_RUN_FROM = "you run programs from there"
_BUILD = "your build tool starts what it names"


class Trusted(Struct, frozen=True):
    """A name, or some names in a row such as `.github/workflows`, and who acts on it."""

    path: str
    why: str


TRUSTED = tuple(
    Trusted(path, why)
    for why, paths in {
        "git starts programs that files here name; commit yourself, or see the how-to page": (".git",),
        "it names programs that your version control starts": (".hg", ".svn", ".bzr", ".jj", ".gitmodules"),
        _SHELL: (".envrc", ".direnv", ".autoenv", ".mise.toml", "mise.toml", ".tool-versions", ".bashrc", ".zshrc"),
        _RUN_FROM: (".venv", "venv", "node_modules/.bin", ".tox", ".nox"),
        "your editor starts what its tasks and settings name": (".vscode", ".devcontainer", ".devcontainer.json"),
        _EDITOR: (
            *(".idea", ".zed", ".fleet", ".vs", ".vim", ".vimrc", ".nvim", ".nvim.lua", ".nvimrc", ".exrc"),
            *(".dir-locals.el", ".sublime-project", ".project", ".settings"),
        ),
        _AGENT: (
            *(
                ".claude",
                ".codex",
                ".gemini",
                ".opencode",
                ".continue",
                ".windsurf",
                ".roo",
                ".cline",
                ".kiro",
                ".qwen",
            ),
            *(".goose", ".crush", ".amp", ".augment", ".junie", ".agents", "opencode.json", "opencode.jsonc"),
        ),
        "servers and commands that your editor starts": (".cursor",),
        _INSTRUCTIONS: (
            *(
                "AGENTS.md",
                "CLAUDE.md",
                "CLAUDE.local.md",
                "GEMINI.md",
                ".cursorrules",
                ".windsurfrules",
                ".clinerules",
            ),
            *(".github/copilot-instructions.md", ".github/instructions", ".github/prompts"),
        ),
        "it names commands": (".aider.conf.yml",),
        "servers that your clients start": (".mcp.json", "mcp.json"),
        _HOOKS: (
            *(
                ".husky",
                ".githooks",
                ".pre-commit-config.yaml",
                ".pre-commit-hooks.yaml",
                "lefthook.yml",
                ".lefthook.yml",
            ),
            *(".overcommit.yml", ".lintstagedrc", ".lintstagedrc.json"),
        ),
        _CI: (
            *(
                ".github/workflows",
                ".github/actions",
                ".gitlab-ci.yml",
                ".gitlab",
                ".circleci",
                ".buildkite",
                ".drone.yml",
            ),
            *(
                ".travis.yml",
                ".woodpecker",
                ".woodpecker.yml",
                "Jenkinsfile",
                "azure-pipelines.yml",
                ".azure-pipelines",
            ),
            *("bitbucket-pipelines.yml", ".forgejo/workflows", ".gitea/workflows", ".cirrus.yml", "appveyor.yml"),
            *(".teamcity", "cloudbuild.yaml", "buildspec.yml"),
        ),
        _BUILD: (
            *(".cargo", ".mvn", ".gradle", ".bazelrc", ".yarn", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".npmrc"),
            *(".bundle", ".pdbrc", ".gdbinit", ".lldbinit", ".pythonrc", ".inputrc", ".buckconfig"),
        ),
    }.items()
    for path in paths
)
# In `.git`: what names programs, and what leads git to another directory that does. Commits write none of it. Not
# `rebase-merge` and `sequencer`, which name programs too: a closed name is there, though empty, and git then takes it
# for a rebase that has not ended, or fails to write into it.
GIT_LEADS = ("branches", "commondir", "config", "config.worktree", "hooks", "modules", "remotes", "worktrees")
_BY_LAST: dict[str, list[tuple[tuple[str, ...], str]]] = {}
for _one in TRUSTED:
    _names = tuple(_one.path.lower().split("/"))
    _BY_LAST.setdefault(_names[-1], []).append((_names, _one.why))


def why_trusted(path: str, workdir: str) -> str:
    """Who acts on a path, or on a directory that it is in; empty if nobody does. Upper case does not matter.

    Directories around the working directory do not count, since a project may lie in `~/.claude/worktrees`; its own
    name does.
    """
    names = path.lower().split("/")
    around = workdir.count("/") if inside(path, (workdir,)) else 0
    for number, name in enumerate(names):
        for row, why in _BY_LAST.get(name, ()) if number >= around else ():
            if tuple(names[number + 1 - len(row) : number + 1]) == row:
                return why
    return ""
