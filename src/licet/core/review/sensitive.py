"""Which uses a draft of a policy must not allow by itself: keys, secrets, homes, what others run, private addresses.

`licet learn` writes a rule for such a use as a comment, with the reason, for a person to decide.

What other programs run or trust: names of files and directories that git, editors, shells, CI and agents act on.

A program that may write one of these can make a program outside of its walls start whatever it likes. `licet learn`
leaves such a write to a person, and `licet init --preset coding` denies it.
"""

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from licet.core.algebra.rules import Use
from licet.core.algebra.scope import inside, is_address
from licet.core.decision.foreseen import has_no_public_address
from licet.core.late_pattern import late_pattern
from licet.core.policy.addresses import address_kind
from licet.core.review.socket_power import socket_power

_AGENT = "hooks, servers and commands of an agent that you start elsewhere"
_HOOKS_OF_AGENT = "hooks and settings of a coding agent, which can switch off those that govern it"
INSTRUCTIONS = "instructions that an agent follows elsewhere"
_EDITOR = "your editor starts what its settings name"
_CI = "your CI runs it, often with secrets"
_HOOKS = "it names programs that run at each commit"
_SHELL = "your shell runs it when you enter the directory"
_RUN_FROM = "you run programs from there"
_BUILD = "your build tool starts what it names"
_MISE = ("mise.local.toml", ".mise/config.toml", ".config/mise.toml")


Closing = Literal["always", "if there", "never"]


class Trusted(Struct, frozen=True):
    """A name, or some names in a row such as `.github/workflows`, and who acts on it.

    `closing` is what `licet run` with flags alone does about it below a written directory: it closes most, there or
    not; an environment if it is there, since making one is ordinary work; and never what each install or build writes.
    """

    path: str
    why: str
    closing: Closing = "always"


# Rarely used: an empty file or directory of each of these names in every project would be too much.
_RARE = (
    *(".rules", ".nova", ".semaphore", ".tekton", ".build.yml", ".builds", ".dir-locals-2.el", ".lvimrc"),
    *(".drone.yaml", ".woodpecker.yaml", "azure-pipelines.yaml", "cloudbuild.yml", ".config/lefthook.yml"),
    *(".config/mise.toml", ".mise/config.toml", ".helix/languages.toml", ".lintstagedrc.js", "lefthook.yaml"),
    *(".github/dependabot.yml", ".github/CODEOWNERS", ".github/chatmodes", ".goosehints", ".roorules", ".trae"),
    *(".kilocode", "QWEN.md", ".roomodes"),
)
_MADE_BY_WORK: dict[str, Closing] = {
    **dict.fromkeys(_RARE, "if there"),
    **dict.fromkeys((".venv", "venv", ".tox", ".nox"), "if there"),
    **dict.fromkeys(("node_modules/.bin", ".gradle"), "never"),
}


TRUSTED = tuple(
    Trusted(path, why, _MADE_BY_WORK.get(path, "always"))
    for why, paths in {
        "git starts programs that files here name; commit yourself, or see the how-to page": (".git",),
        "it names programs that your version control starts": (".hg", ".svn", ".bzr", ".jj", ".gitmodules"),
        _SHELL: (
            ".envrc",
            ".direnv",
            ".autoenv",
            ".mise.toml",
            "mise.toml",
            ".tool-versions",
            ".bashrc",
            ".zshrc",
            *_MISE,
        ),
        _RUN_FROM: (".venv", "venv", "node_modules/.bin", ".tox", ".nox"),
        "your editor starts what its tasks and settings name": (".vscode", ".devcontainer", ".devcontainer.json"),
        _EDITOR: (
            *(".idea", ".zed", ".fleet", ".vs", ".vim", ".vimrc", ".nvim", ".nvim.lua", ".nvimrc", ".exrc"),
            *(
                ".dir-locals.el",
                ".sublime-project",
                ".project",
                ".settings",
                ".dir-locals-2.el",
                ".lvimrc",
                ".nova",
                ".helix/languages.toml",
            ),
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
            *(
                ".goose",
                ".crush",
                ".amp",
                ".augment",
                ".junie",
                ".agents",
                "opencode.json",
                "opencode.jsonc",
                "tui.json",
                "tui.jsonc",
                "crush.json",
                ".crush.json",
                ".roomodes",
                ".kilocode",
                ".trae",
                ".github/agents",
                ".github/chatmodes",
                ".github/skills",
            ),
        ),
        "servers and commands that your editor starts": (".cursor",),
        _HOOKS_OF_AGENT: (".github/copilot", ".github/hooks"),
        INSTRUCTIONS: (
            *(
                "AGENTS.md",
                "CLAUDE.md",
                "CLAUDE.local.md",
                "GEMINI.md",
                ".cursorrules",
                ".windsurfrules",
                ".clinerules",
                "AGENTS.override.md",
                "QWEN.md",
                ".goosehints",
                ".rules",
                ".roorules",
            ),
            *(".github/copilot-instructions.md", ".github/instructions", ".github/prompts"),
        ),
        "it names commands": (".aider.conf.yml",),
        "servers that your clients start": (".mcp.json", "mcp.json", ".github/mcp.json"),
        _HOOKS: (
            *(
                ".husky",
                ".githooks",
                ".pre-commit-config.yaml",
                ".pre-commit-hooks.yaml",
                "lefthook.yml",
                ".lefthook.yml",
            ),
            *(
                ".overcommit.yml",
                ".lintstagedrc",
                ".lintstagedrc.json",
                ".lintstagedrc.js",
                "lefthook.yaml",
                "lefthook-local.yml",
                ".config/lefthook.yml",
            ),
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
            *(".teamcity", "cloudbuild.yaml", "buildspec.yml", "cloudbuild.yml", ".drone.yaml", ".woodpecker.yaml"),
            *("azure-pipelines.yaml", ".semaphore", ".tekton", ".build.yml", ".builds", ".github/dependabot.yml"),
            *(".github/CODEOWNERS",),
        ),
        _BUILD: (
            *(
                ".cargo",
                ".mvn",
                ".gradle",
                ".bazelrc",
                ".yarn/releases",
                ".yarn/plugins",
                ".yarnrc",
                ".yarnrc.yml",
                ".pnpmfile.cjs",
                ".npmrc",
            ),
            *(".bundle", ".pdbrc", ".gdbinit", ".lldbinit", ".pythonrc", ".inputrc", ".buckconfig"),
        ),
    }.items()
    for path in paths
)


class Switch(Struct, frozen=True):
    """What configures a coding agent: whoever writes it can switch off the hook that governs that agent."""

    agent: str
    path: str  # below the project, or any other directory
    is_directory: bool


# Below a project, and below any directory that an agent is started in or reads a file in, of the agents whose hooks are
# known. Agents read the directories also while they run.
SWITCHES = (
    Switch("claude", ".claude", True),
    Switch("claude", ".mcp.json", False),
    Switch("codex", ".codex", True),
    Switch("gemini", ".gemini", True),
    Switch("copilot", ".github/copilot", True),
    Switch("copilot", ".github/hooks", True),
    Switch("copilot", ".github/mcp.json", False),
    Switch("opencode", ".opencode", True),
    Switch("opencode", "opencode.json", False),
    Switch("opencode", "opencode.jsonc", False),
    Switch("opencode", "tui.json", False),
    Switch("opencode", "tui.jsonc", False),
    Switch("cursor", ".cursor", True),
)
# Below the home directory: what configures these agents, and what they run, closed as a whole.
HOME_SWITCHES: Mapping[str, tuple[str, ...]] = {
    "claude": (".claude", ".claude.json"),
    "codex": (".codex",),
    "gemini": (".gemini",),
    "copilot": (".copilot",),
    "opencode": (".config/opencode", ".opencode"),
    "cursor": (".cursor",),
    "licet": (".config/licet",),  # the policy of sessions outside of every project
}
# What the agents let a model write there, by their own tools for files: plans, and memory of a project.
HOME_WRITTEN = (".claude/plans", ".claude/projects", ".claude/agent-memory", ".gemini/tmp", ".copilot/session-state")


class Elsewhere(Struct, frozen=True):
    """A variable that puts a file or directory of the home elsewhere: at its value, or at a path below that."""

    variable: str
    path: str  # below the home
    below: str = ""


ELSEWHERE = (
    Elsewhere("CLAUDE_CONFIG_DIR", ".claude"),
    Elsewhere("CODEX_HOME", ".codex"),
    Elsewhere("COPILOT_HOME", ".copilot"),
    Elsewhere("GEMINI_CLI_HOME", ".gemini", ".gemini"),
    Elsewhere("OPENCODE_CONFIG", ".config/opencode"),
    Elsewhere("OPENCODE_CONFIG_DIR", ".config/opencode"),
    Elsewhere("XDG_CONFIG_HOME", ".config/opencode", "opencode"),
    Elsewhere("XDG_CONFIG_HOME", ".config/licet", "licet"),
)
# Below a home, there or not: what shells, git, ssh and the session run or obey.
HOME_TRUSTED = (
    *(".bashrc", ".zshrc"),  # which TRUSTED names anywhere, where they are
    *(".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshenv", ".zprofile", ".zlogin", ".zlogout"),
    *(".config/fish", ".gitconfig", ".config/git", ".ssh", ".config/autostart", ".config/systemd", ".local/bin", "bin"),
)
# Of the whole machine: what an administrator has written there holds.
MACHINE_SWITCHES = (
    *("/etc/claude-code", "/etc/codex", "/etc/gemini-cli", "/etc/github-copilot", "/etc/opencode", "/etc/cursor"),
)

_SWITCH_NAMES = tuple(tuple(one.path.split("/")) for one in SWITCHES)


def is_switch(names: Sequence[str]) -> bool:
    """Whether a path, as its names, is what configures a coding agent in some directory, or is inside it.

    Upper case does not matter: on some file systems it is the same file.
    """
    folded = tuple(name.casefold() for name in names)
    return any(folded[number : number + len(row)] == row for number in range(len(folded)) for row in _SWITCH_NAMES)


# How names of files end that editors take for a project, with what starts programs.
TRUSTED_ENDINGS = (".code-workspace", ".sublime-project")
EDITOR_PROJECT = _EDITOR
# In `.git`: what names programs, and what leads git to another directory that does. Commits write none of it. Not
# `rebase-merge` and `sequencer`, which name programs too: a closed name is there, though empty, and git then takes it
# for a rebase that has not ended, or fails to write into it.
GIT_LEADS = ("config", "hooks", "config.worktree", "commondir", "modules", "worktrees", "branches", "remotes")
# Git takes the directory that it is started in for a repository if `.git` is none and these are all there, as the
# directories and the file that they must be. One that is not there is enough. `HEAD` is the last: while a file has that
# name, git asks what `git diff HEAD` means.
BARE_PARTS = ("refs", "objects", "HEAD")
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
    return EDITOR_PROJECT if names[-1].endswith(TRUSTED_ENDINGS) else ""


# Directories of keys and credentials, wherever they are.
_KEY_DIRECTORIES = frozenset(
    (".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".gcloud", ".oci", ".terraform.d")
)
# Files that hold secrets by custom, wherever they are. Lower case is compared.
_SECRET_FILE = late_pattern(
    r".*\.env(?:\..+)?|\.netrc|_netrc|\.?pgpass(?:\.conf)?|\.my(?:login)?\.cnf|\.npmrc|\.pypirc|\.git-credentials|\.htpasswd"
    r"|\.vault[-_](?:token|pass.*)|\.authinfo|\.dockercfg|\.dockerconfigjson|\.boto|\.s3cfg|\.?rclone\.conf|\.terraformrc"
    r"|id_[a-z0-9_]+|.+_(?:rsa|dsa|ecdsa|ed25519)"
    r"|.+\.(?:pem|key|p8|p12|pfx|jks|jceks|keystore|keytab|kdbx?|ppk|agekey|gpg|pgp|ovpn|tfvars|tfstate|kubeconfig|secrets?)"
    r"|.+\.tfvars\.json|.+\.tfstate\..+|\.?kubeconfig(?:[-_.].+)?|.+\.keychain(?:-db)?|key[34]\.db|logins\.json"
    r"|(?:.*[-_.])?service[-_]?account.*\.json|.*firebase-adminsdk.*\.json|local\.settings\.json|auth\.json"
    r"|(?:.*[-_.])?(?:credentials?|secrets?|passwords?|tokens?|api[-_]?keys?)(?:[-_.].*)?|cookies(?:\.txt|\.sqlite)?"
    r"|wp-config(?:[-_.].*)?\.php|localsettings\.php"
)
# Files of source and of pages, whatever they are called: `token.py` is about tokens.
_SOURCE = late_pattern(
    r".+\.(?:py[ciwx]?|pyc\.[0-9]+|pyi|[cm]?[jt]sx?|go|rs|java|kt|rb|c|h|cc|cpp|hpp|cs|swift|php|sh|so|md|rst|html?|css|svg|map|d|lock|snap)"
)
_SECRET_OF_SYSTEM = late_pattern(
    r"/etc/g?shadow-?|/etc/sudoers|/etc/krb5\.keytab|/etc/ssh/ssh_host_.*key|/proc/[^/]+/(?:environ|mem)"
    r"|/run/user/[^/]+/(?:keyring|gnupg)(?:/.*)?"
)
# Directories of secrets of the system. `/var/run` is `/run`.
_SECRET_PLACES = (
    *("/run/secrets", "/run/credentials", "/etc/kubernetes", "/etc/rancher", "/var/lib/kubelet", "/var/lib/rancher"),
    *("/etc/ssl/private", "/etc/pki/tls/private", "/etc/letsencrypt", "/etc/wireguard", "/etc/sudoers.d"),
    *("/etc/NetworkManager/system-connections", "/etc/security/opasswd", "/var/lib/docker", "/var/lib/containerd"),
)
# The home and runtime directories of every user, not only of the one who recorded.
_HOME = late_pattern(r"(?:/(?:var/|usr/|export/)?home|/Users|/run/user)/[^/]+|/root")
_BELOW_HOME = late_pattern(rf"(?:{_HOME.pattern})/(.*)", re.DOTALL)
# What programs of the system, or of other users, run or obey.
_OF_SYSTEM = (
    *("/etc", "/var/spool", "/usr", "/opt", "/boot", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/Library", "/System", "/Applications"),
)
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108
_WORKED_IN = ("/usr", "/opt")  # a project may be there, as in containers
# The working directory may be a top-level directory, as `/app` in a container, but none of these.
_SYSTEM_DIRECTORIES = frozenset(
    f"/{name}"
    for name in (
        *("bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "media", "mnt", "opt", "proc"),
        *("root", "run", "sbin", "sys", "tmp", "usr", "var", "Users", "Library", "System"),
    )
)
_SECRET_VARIABLE = late_pattern(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|KEY|APIKEY|AUTH|PAT|DSN)(?:_|$)|_PWD$"
    r"|^DATABASE_URL$",
    re.IGNORECASE,
)
# Variables that make interpreters, linkers, shells, build tools or git run other code.
_CODE_VARIABLE = late_pattern(
    r"(?:DY)?LD_.*|PYTHON.*|NODE_(?:OPTIONS|PATH)|npm_config_.*|PERL5?(?:LIB|OPT|DB)|RUBY(?:OPT|LIB)|GEM_(?:HOME|PATH)"
    r"|BUNDLE_GEMFILE|BASH_ENV|BASH_FUNC_.*|ENV|ZDOTDIR|SHELLOPTS|BASHOPTS|PS4|PROMPT_COMMAND|IFS|SHELL|GIT_.*|SSH_ASKPASS"
    r"|SUDO_ASKPASS|EDITOR|VISUAL|PAGER|MANPAGER|BROWSER|LESSOPEN|LESSCLOSE|.*JAVA_(?:TOOL_)?OPTIONS|CLASSPATH"
    r"|(?:MAVEN|GRADLE|SBT|ANT|JAVA)_OPTS|GCONV_PATH|LOCPATH|NLSPATH|RUSTC(?:_.*)?|RUSTFLAGS|CARGO_.*|GOFLAGS|GOPROXY"
    r"|GOTOOLCHAIN|MAKEFLAGS|CC|CXX|LD|DOTNET_STARTUP_HOOKS|CORE?(?:CLR)?_.*PROFILER.*|PHPRC|PHP_INI_SCAN_DIR"
    r"|LUA_(?:INIT|C?PATH).*|R_PROFILE.*|R_ENVIRON.*|ERL_.*|TAR_OPTIONS|OPENSSL_(?:CONF|MODULES|ENGINES)|GTK_MODULES"
    r"|QT_PLUGIN_PATH|ELECTRON_RUN_AS_NODE|PIP_.*|UV_.*",
    re.IGNORECASE,
)
# Names in networks of containers and services, and names that lead to whatever address they contain or to this machine.
_INNER_NAMES = (".svc", ".default", ".localdomain", ".consul", ".docker", ".test", ".invalid", ".onion")
_NAMES_OF_ADDRESSES = (".nip.io", ".sslip.io", ".xip.io", ".traefik.me", ".localtest.me", ".lvh.me")
GIT = "git runs programs that files here name"
# Where git keeps data and names no programs.
GIT_DATA = late_pattern(r".*/\.git/(?:objects|refs|logs|lfs)(?:/.*)?", re.IGNORECASE | re.DOTALL)
# Examples, and the public certificates that every TLS client reads.
_HARMLESS = late_pattern(
    r"cacert\.pem|ca-bundle\.pem|roots\.pem|(?:.*[-_.])?(?:example|sample|template|dist)s?(?:[-_.].*)?(?<!\.pem)(?<!\.key)"
)


# Toolchains below a home directory. They hold installed programs and libraries, and no secrets.
_TOOLCHAIN = late_pattern(
    r"(?:\.pyenv/(?:shims|libexec|plugins|pyenv\.d|version)|\.cargo/bin"
    r"|\.(?:pyenv/versions|rustup/toolchains|nvm/versions/node|local/share/(?:uv/python|fnm/node-versions))/[^/]+"
    r"|\.(?:asdf/installs|sdkman/candidates|volta/tools/image|local/share/mise/installs)/[^/]+/[^/]+)(?=/|$)"
)
# What programs keep to be faster, below a home, and in any directory. Its names are hashes, and it may be removed.
_CACHE = late_pattern(
    r"(?:\.cache/[^/]+|Library/Caches/[^/]+|\.npm/_[^/]+|\.cargo/(?:registry|git)|go/pkg/mod|\.m2/repository|\.gradle/caches"
    r"|\.local/share/pnpm/store|\.bun/install/cache|\.yarn/berry/cache)(?=/|$)"
)
_CACHE_HERE = late_pattern(
    r".*?/(?:__pycache__|\.pytest_cache|\.mypy_cache|\.ruff_cache|node_modules/\.cache|\.eslintcache)(?=/|$)", re.DOTALL
)


class Whereabouts(Struct, frozen=True):
    """The working directory and the home, which may be empty, and the home that a recording names, if it is another."""

    workdir: str
    home: str
    recorded_home: str = ""

    @property
    def homes(self) -> tuple[str, ...]:
        """The homes that are known by name."""
        return tuple(home for home in (self.home, self.recorded_home) if home)

    @property
    def worked_in(self) -> tuple[str, ...]:
        """Where programs make files of their own, the working directory first. Elsewhere is what was installed."""
        return (self.workdir, *self.homes, *_TEMPORARY)

    def has_workdir(self, path: str) -> bool:
        """Whether a path is the working directory or inside it."""
        return inside(path, (self.workdir,))

    @property
    def is_project(self) -> bool:
        """Whether the working directory is a directory of its own, and neither a home, nor above it, nor the system."""
        if _HOME.fullmatch(_usual(self.workdir)) or self.workdir in ("/", *_SYSTEM_DIRECTORIES):
            return False
        return not any(inside(home, (self.workdir,)) for home in self.homes)

    def toolchain(self, path: str) -> str:
        """The directory of installed programs below a home, anybody's, that a path is in; empty if it is in none."""
        if found := self._below_home(path, _TOOLCHAIN):
            return found
        of_somebody = _BELOW_HOME.fullmatch(path)
        below = _TOOLCHAIN.match(of_somebody[1]) if of_somebody else None
        return path[: len(path) - len(below.string) + below.end()] if below else ""

    def cache(self, path: str) -> str:
        """The cache that a path is in; empty if it is in none."""
        here = _CACHE_HERE.match(path) if self.has_workdir(path) else None
        return here[0] if here else self._below_home(path, _CACHE)

    def _below_home(self, path: str, names: re.Pattern[str]) -> str:
        for home in self.homes:
            below = path.removeprefix(f"{home.rstrip('/')}/")
            if below != path and (found := names.match(below)):
                return path[: len(path) - len(below) + found.end()]
        return ""

    def short(self, path: str) -> str:
        """The path as a policy writes it, with `${workdir}` or `~`."""
        for name, place in (("${workdir}", self.workdir), ("~", self.home)):
            if place not in ("", "/") and inside(path, (place,)):
                return name + path[len(place) :]
        return path


def is_wide_directory(path: str, where: Whereabouts) -> bool:
    """Whether a directory holds more than one matter: `/`, a top-level directory, a home, or what is above it.

    The working directory is not wide, unless it is one of these; what is above it is.
    """
    if path == "/" or path in where.homes or _HOME.fullmatch(_usual(path)):
        return True
    if path.count("/") < 2 and (path != where.workdir or path in _SYSTEM_DIRECTORIES):
        return True
    return any(place != path and inside(place, (path,)) for place in (*where.homes, where.workdir) if place)


def _usual(path: str) -> str:
    """A path of the system without the links that some systems have above it."""
    if path.startswith("/private/"):
        path = path.removeprefix("/private")
    return path.removeprefix("/var") if f"{path}/".startswith("/var/run/") else path


def no_repository(path: str) -> bool:
    """Say that there is no repository of git."""
    return False


def why_sensitive(
    use: Use,
    where: Whereabouts,
    directories: Container[str] = (),
    reaches_git: Callable[[str], bool] = no_repository,
) -> str:
    """Why a person must decide on a use; empty if it is ordinary.

    `directories` are paths known to be directories. `reaches_git` says whether a path is in the files of a repository,
    or a directory with a repository in it.
    """
    if use.effect == "delete":
        return "a delete"
    match use.domain:
        case "secret":
            return "a secret"
        case "env":
            return _why_variable(use.target)
        case "network":
            return _why_host(use)
        case "socket":
            return f"a socket of another program: {socket_power(use.target)}"
        case "fs":
            if use.action == "read" and where.toolchain(use.target):
                return _why_keys(use.target, directories)
            why = why_path(use.target, where, directories)
            return why or (why_written(use.target, where, reaches_git) if use.action == "write" else "")
        case _:
            return ""


def _why_variable(name: str) -> str:
    if _CODE_VARIABLE.fullmatch(name):
        return "a variable that can make programs run other code"
    return "a variable that may hold a secret" if _SECRET_VARIABLE.search(name) else ""


def _why_host(use: Use) -> str:
    host = use.target
    if is_address(host):
        kind = address_kind(host.strip("[]"))
        if kind.metadata:
            return "a metadata service"
        if kind.closed:
            return f"an address that is {kind.title}"
    elif has_no_public_address(host) or f".{host}".endswith(_INNER_NAMES):
        return "a name of a private network"
    elif f".{host}".endswith(_NAMES_OF_ADDRESSES):
        return "a name that leads to any address"
    return "a method whose effect is not known, for which the class must be full" if use.method == "other" else ""


def why_path(path: str, where: Whereabouts, directories: Container[str] = ()) -> str:
    """Why a person must decide on a path; empty if it is ordinary. A rule for a path covers everything below it."""
    if is_wide_directory(path, where):
        return "a directory of many things: a rule for it covers all of them"
    if why := _why_keys(path, directories):
        return why
    if not (where.is_project and where.has_workdir(path)) and _is_dotted(path, where):
        return "a dot-file or dot-directory of the home"
    return ""


def _is_dotted(path: str, where: Whereabouts) -> bool:
    """Whether a path is below a name that begins with a dot, in a home."""
    if (of_somebody := _BELOW_HOME.fullmatch(_usual(path))) and of_somebody[1].startswith("."):
        return True
    return any(path.startswith(f"{home.rstrip('/')}/.") for home in where.homes)


def why_written(path: str, where: Whereabouts, reaches_git: Callable[[str], bool]) -> str:
    """Why a person must decide on a write to a path that may be read; empty if it is ordinary."""
    if ".git" in path.lower().split("/") or reaches_git(path):
        return GIT
    if why := why_trusted(path, where.workdir):
        return why
    usual = _usual(path)
    is_worked_in = where.is_project and where.has_workdir(path) and inside(usual, _WORKED_IN)
    if inside(usual, _OF_SYSTEM) and not is_worked_in:
        return "a part of the system, which other programs run or obey"
    return ""


def is_secret_file(name: str) -> bool:
    """Whether a file holds secrets by custom, as its name says."""
    name = name.lower().replace("\n", " ")
    if not _SECRET_FILE.fullmatch(name) or _HARMLESS.fullmatch(name):
        return False
    return not _SOURCE.fullmatch(name) or name.startswith(("wp-config", "localsettings"))


def _why_keys(path: str, directories: Container[str] = ()) -> str:
    parts = path.split("/")[1:]
    if not _KEY_DIRECTORIES.isdisjoint(parts):
        return "keys or credentials"
    is_named_so = path not in directories and is_secret_file(parts[-1])
    usual = _usual(path)
    if is_named_so or _SECRET_OF_SYSTEM.fullmatch(usual) or inside(usual, _SECRET_PLACES):
        return "a file that may hold secrets"
    if usual in _ABOVE_SECRETS:
        return "a directory with secrets of the system"
    return ""


def holds_keys(path: str) -> bool:
    """Whether a path of a rule, such as `~/.ssh`, holds keys, credentials or secrets by its name."""
    return "/" in path and bool(_why_keys(path))


def keys_below(path: str, home: str) -> list[str]:
    """The places of keys and secrets that may be below a directory: in it, in the home and of the system."""
    folders = [folder for folder in dict.fromkeys((home, path)) if folder and inside(folder, (path,))]
    names = sorted(_KEY_DIRECTORIES, key=lambda name: (name != ".ssh", name))  # everybody knows that one
    named = (f"{folder.rstrip('/')}/{name}" for folder in folders for name in names)
    return [place for place in (*named, *_SECRET_PLACES) if inside(place, (path,))]


def above_each(paths: Iterable[str]) -> set[str]:
    """Paths with every directory above them."""
    found: set[str] = set()
    for path in paths:
        while path and path not in found:
            found.add(path)
            path = path.rpartition("/")[0]
    return found


_ABOVE_SECRETS = above_each(place.rpartition("/")[0] for place in (*_SECRET_PLACES, "/etc/ssh/ssh_host_key"))
