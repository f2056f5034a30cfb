"""Which uses a draft leaves to a person, and which are ordinary."""

import pytest

from licet.core.algebra.rules import Use
from licet.core.review.sensitive import GIT, Whereabouts, is_wide_directory, why_sensitive

WHERE = Whereabouts("/home/me/w", "/home/me")
MANY, KEYS, FILE, DOT = "many things", "keys or credentials", "hold secrets", "dot-file"
SYSTEM, CODE = "a part of the system", "run other code"
NETWORK = "a name of a private network"

CODE_VARIABLES = (
    *("LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "PYTHONPATH", "NODE_OPTIONS", "PERL5OPT", "RUBYOPT", "BASH_ENV"),
    *("GIT_SSH_COMMAND", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "CORECLR_PROFILER_PATH", "EDITOR", "LESSOPEN"),
)
# What other programs run or trust, and a part of the reason.
TRUSTED_WRITES = {
    ".claude/settings.json": "an agent",
    ".vscode/tasks.json": "your editor",
    ".envrc": "your shell",
    ".mcp.json": "your clients",
    ".husky/pre-commit": "each commit",
    ".hg/hgrc": "version control",
    ".github/workflows/ci.yml": "your CI",
    "sub/.vscode/settings.json": "your editor",
    ".VSCode/tasks.json": "your editor",
    ".venv/bin/python": "programs from there",
    "node_modules/.bin/eslint": "programs from there",
    ".cursor/mcp.json": "your editor",
    ".idea/workspace.xml": "your editor",
    ".devcontainer/devcontainer.json": "your editor",
    ".pre-commit-config.yaml": "each commit",
    ".gitlab-ci.yml": "your CI",
    "Jenkinsfile": "your CI",
    ".circleci/config.yml": "your CI",
    ".cargo/config.toml": "build tool",
    "AGENTS.md": "instructions",
}
ORDINARY_WRITES = (
    "src/a.py",
    ".github/ISSUE_TEMPLATE.md",
    "claude/x",
    "workflows/ci.yml",
    "vscode",
    "docs/agents/a.md",
)
SECRET_FILES = (
    *("prod.env", "secrets.env", "a.tfvars", "terraform.tfstate", "terraform.tfstate.backup", "kubeconfig",
        "home.ovpn"),
    *("service-account.json", "service-account-prod.json", "my-service_account.json", "backup.gpg", "wp-config.php"),
    *("token.txt", ".npmrc", ".pypirc", ".netrc", "a.pem", "id_ed25519", "id_work", "credentials.csv", "credentials"),
    *("client_secret_12.json", "secrets.yaml", "passwords.txt", "github-token", "api_key.txt", "deploy_rsa", "x.p8"),
    *("cluster.kubeconfig", ".vault_pass.txt", "prod.auto.tfvars.json", "SECRETS.ENV", "cookies.txt", "db.secret"),
)  # fmt: skip
NO_SECRETS = (
    *("example.env", ".env.sample", "a.tfvars.example", "token.py", "tokenizer.json", "secrets.md", "credentials.ts"),
    *(
        "environment.yml",
        "tokens.css",
        "passwords.go",
        "notes.txt",
        "idea.txt",
        "wp-content.php",
        "monkey.txt",
        "id.txt",
    ),
)


@pytest.mark.parametrize(
    ("use", "why"),
    [
        ("fs:read:/", MANY),
        ("fs:read:/etc", MANY),
        ("fs:read:/home", MANY),
        ("fs:write:/home/me", MANY),
        ("fs:read:/etc/passwd", ""),
        ("fs:read:/etc/shadow", FILE),
        ("fs:read:/proc/self/environ", FILE),
        ("fs:read:/proc/self/status", ""),
        ("fs:read:/home/me/.ssh/config", KEYS),
        ("fs:read:/home/me/w/.aws/x", KEYS),
        ("fs:read:/home/me/.config/app", DOT),
        ("fs:read:/home/me/.gitconfig", DOT),
        ("fs:read:/home/me/notes", ""),
        ("fs:read:/home/me/w", ""),
        ("fs:read:/home/me/w/.git/config", ""),
        ("fs:read:/home/me/w/.env", FILE),
        ("fs:read:/home/me/w/.env.local", FILE),
        ("fs:read:/home/me/w/.env.example", ""),
        ("fs:read:/home/me/w/site-packages/certifi/cacert.pem", ""),
        ("fs:read:/home/me/w/.envrc", ""),
        ("fs:read:/home/me/w/server.KEY", FILE),
        ("fs:read:/home/me/w/keys.txt", ""),
        ("fs:read:/home/me2/.config/app", DOT),
        ("fs:read:/root/.bash_history", DOT),
        ("fs:read:/home/me2", MANY),
        ("fs:read:/Users/me2", MANY),
        ("fs:read:/run/user/1000", MANY),
        ("fs:read:/var/run/user/1000", MANY),
        ("fs:read:/home/me2/notes", ""),
        ("fs:read:/run/secrets/kubernetes.io/serviceaccount/token", FILE),
        ("fs:read:/var/run/secrets", FILE),
        ("fs:read:/etc/kubernetes/admin.conf", FILE),
        ("fs:read:/etc/ssh/ssh_host_ed25519_key", FILE),
        ("fs:read:/private/etc/ssh/ssh_host_rsa_key", FILE),
        ("fs:read:/etc/ssh", "secrets of the system"),
        ("fs:read:/etc/ssh/ssh_config", ""),
        ("fs:write:/etc/cron.d/x", SYSTEM),
        ("fs:write:/private/etc/x", SYSTEM),
        ("fs:write:/var/spool/cron/me", SYSTEM),
        ("fs:write:/usr/local/bin/git", SYSTEM),
        ("fs:write:/opt/x", SYSTEM),
        ("fs:write:/boot/grub/grub.cfg", SYSTEM),
        ("fs:write:/var/lib/app/x", ""),
        ("fs:write:/home/me/w/.git/index", GIT),
        ("fs:write:/home/me/w/.GIT/hooks/pre-commit", GIT),
        ("fs:write:/home/me/w/sub/.git", GIT),
        ("fs:write:/home/me/w/.gitignore", ""),
        *((f"fs:write:/home/me/w/{name}", "") for name in ORDINARY_WRITES),
        *((f"fs:write:/home/me/w/{name}", why) for name, why in TRUSTED_WRITES.items()),
        *((f"fs:read:/home/me/w/{name}", "") for name in TRUSTED_WRITES),
        *((f"fs:read:/home/me/w/{name}", FILE) for name in SECRET_FILES),
        *((f"fs:read:/home/me/w/{name}", "") for name in NO_SECRETS),
        ("fs:write:/home/me/w/a", ""),
        ("fs:delete:/home/me/w/a", "a delete"),
        ("network:https:get@example.com:443", ""),
        ("network:https:delete@example.com:443", "a delete"),
        ("network:https:other@example.com:443", "class must be full"),
        ("network:tcp:example.com:5432", ""),
        ("network:http:get@169.254.169.254:80", "a metadata service"),
        ("network:http:get@10.0.0.8:80", "private"),
        ("network:http:get@[::1]:80", "loopback"),
        ("network:http:get@8.8.8.8:80", ""),
        ("network:http:get@localhost:80", NETWORK),
        ("network:http:get@db.internal:80", NETWORK),
        ("network:http:get@printer.local:80", NETWORK),
        ("network:https:get@kubernetes.default.svc:443", NETWORK),
        ("network:https:get@kubernetes.default:443", NETWORK),
        ("network:http:get@10.0.0.1.nip.io:80", "any address"),
        ("secret:read:github/token", "a secret"),
        ("env:read:PATH", ""),
        ("env:read:GITHUB_TOKEN", "a variable"),
        ("env:read:KEYBOARD", ""),
        ("env:read:SSH_AUTH_SOCK", "a variable"),
        *((f"env:read:{name}", CODE) for name in CODE_VARIABLES),
        *((f"env:read:{name}", "") for name in ("LANG", "HOME", "TERM", "LC_ALL", "TZ", "PWD", "CI")),
        ("process:exec:/usr/bin/git", ""),
        ("tool:call:read_file", ""),
    ],
)
def test_sensitive_uses(use: str, why: str) -> None:
    found = why_sensitive(Use(use), WHERE)
    assert why in found
    assert bool(found) == bool(why)


def test_a_directory_is_no_file_of_secrets() -> None:
    assert not why_sensitive(Use("fs:read:/home/me/w/.env"), WHERE, {"/home/me/w/.env"})


@pytest.mark.parametrize(
    ("workdir", "home", "path", "wide"),
    [
        ("/app", "/home/me", "/app", False),
        ("/srv", "", "/srv", False),
        ("/srv", "", "/opt", True),
        ("/etc", "/root", "/etc", True),
        ("/", "/root", "/", True),
        ("/home/me", "/home/me", "/home/me", True),
        ("/a/b/c/d", "/home/me", "/a/b/c", True),
        ("/a/b/c/d", "/home/me", "/a/b/e", False),
        ("/w", "/var/home/me", "/var/home", True),
    ],
)
def test_wide_directories(workdir: str, home: str, path: str, wide: bool) -> None:
    assert is_wide_directory(path, Whereabouts(workdir, home)) is wide


def test_in_a_working_directory_that_is_the_home_dot_files_are_sensitive() -> None:
    assert DOT in why_sensitive(Use("fs:read:/home/me/.cache/x"), Whereabouts("/home/me", "/home/me"))


@pytest.mark.parametrize(
    ("workdir", "path", "why"),
    [
        ("/usr/src/app", "/usr/src/app/out", ""),
        ("/opt/app", "/opt/app/out", ""),
        ("/opt", "/opt/out", SYSTEM),
        ("/etc/cron.d", "/etc/cron.d/x", SYSTEM),
        ("/home/other", "/home/other/.bashrc", DOT),
        ("/root", "/root/.bashrc", DOT),
    ],
)
def test_a_project_may_be_written_and_a_system_directory_is_no_project(workdir: str, path: str, why: str) -> None:
    found = why_sensitive(Use(f"fs:write:{path}"), Whereabouts(workdir, "/home/me"))
    assert why in found
    assert bool(found) == bool(why)


def test_the_home_that_a_recording_names_counts_as_well_as_the_real_one() -> None:
    where = Whereabouts("/srv/w", "/srv/real", "/srv/said")
    for home in ("/srv/real", "/srv/said"):
        assert MANY in why_sensitive(Use(f"fs:read:{home}"), where)
        assert DOT in why_sensitive(Use(f"fs:read:{home}/.bash_history"), where)
    assert where.short("/srv/said/x") == "/srv/said/x"


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/home/me/w", "${workdir}"),
        ("/home/me/w/a", "${workdir}/a"),
        ("/home/me/wa", "~/wa"),
        ("/home/me", "~"),
        ("/home/mean", "/home/mean"),
    ],
)
def test_short_paths(path: str, short: str) -> None:
    assert WHERE.short(path) == short


@pytest.mark.parametrize(
    ("workdir", "path", "why"),
    [
        ("/home/me/.claude/worktrees/x", "src/a.py", ""),
        ("/home/me/.claude/worktrees/x", ".vscode/tasks.json", "your editor"),
        ("/home/me/.claude/worktrees/x", ".claude/settings.json", "an agent"),
        ("/home/me/.claude/worktrees/x", "/home/me/.claude/worktrees/y/a.py", "dot-file"),
        ("/srv/.claude/worktrees/x", "/srv/.claude/settings.json", "an agent"),
        ("/srv/venv/w", "a.py", ""),
        # The working directory is itself one that others trust.
        ("/srv/.claude", "settings.json", "an agent"),
        ("/srv/.github", "workflows/ci.yml", "your CI"),
    ],
)
def test_what_others_trust_is_judged_from_the_working_directory_on(workdir: str, path: str, why: str) -> None:
    target = path if path.startswith("/") else f"{workdir}/{path}"
    found = why_sensitive(Use(f"fs:write:{target}"), Whereabouts(workdir, "/home/me"))
    assert why in found if why else not found
