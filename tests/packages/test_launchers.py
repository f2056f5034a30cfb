"""Commands of servers, as people write them: what each asks for, and which are refused."""

import pytest

from licet.packages.server_packages import Launch, LaunchError, image_warning, launch_of

FILESYSTEM = "@modelcontextprotocol/server-filesystem"
DIGEST = "sha256:" + "a" * 64

ASKED = [
    (f"npx {FILESYSTEM} /srv", Launch("npm", FILESYSTEM, arguments=("/srv",))),
    (f"npx -y {FILESYSTEM}@2026.8.31", Launch("npm", FILESYSTEM, "2026.8.31")),
    (f"npx --yes --quiet -- {FILESYSTEM}@^1.2 -y", Launch("npm", FILESYSTEM, "^1.2", arguments=("-y",))),
    ("npx left@latest --package x", Launch("npm", "left", "latest", arguments=("--package", "x"))),
    ("npx -p left -p @a/b@1 go --x", Launch("npm", "left", "", "go", ("--x",), ("@a/b@1",))),
    ("npx --package=left@2 go", Launch("npm", "left", "2", "go")),
    ("/usr/local/bin/npx -y left", Launch("npm", "left")),
    ("npx.cmd -y left", Launch("npm", "left")),
    ("npx left -- --x", Launch("npm", "left", arguments=("--", "--x"))),
    ("uvx MCP_Server.git --repository x", Launch("pypi", "mcp-server-git", arguments=("--repository", "x"))),
    ("uvx mcp-server-git@2026.1.2", Launch("pypi", "mcp-server-git", "2026.1.2")),
    ("uvx mcp-server-git@latest -q", Launch("pypi", "mcp-server-git", "latest", arguments=("-q",))),
    ("uvx ruff==0.3.0", Launch("pypi", "ruff", "==0.3.0")),
    ("uvx --from mcp[cli]>=1.2,<2 mcp run", Launch("pypi", "mcp[cli]", "<2,>=1.2", "mcp", ("run",))),
    ("uvx --from=mcp@1.2 mcp", Launch("pypi", "mcp", "1.2", "mcp")),
    ("uvx --with a>=1,<2,b[y,x] --with c@3 d", Launch("pypi", "d", extra=("a<2,>=1", "b[x,y]", "c==3"))),
    ("uv tool run -q mcp-server-git", Launch("pypi", "mcp-server-git")),
    ("pipx run mcp-server-time==1.0 --x", Launch("pypi", "mcp-server-time", "==1.0", arguments=("--x",))),
    ("pipx run --no-cache --spec time[a]~=1.0 go", Launch("pypi", "time[a]", "~=1.0", "go")),
    ("python server.py --port 1", Launch(
        "file", program="server.py", arguments=("--port", "1"), interpreter=("python",))),
    ("python3.12 -u -X dev s.py", Launch("file", program="s.py", interpreter=("python3.12", "-u", "-X", "dev"))),
    ("python -I -m a.b -m c", Launch("file", program="a.b", arguments=("-m", "c"), interpreter=("python", "-I", "-m"))),
    ("python s.py -m c", Launch("file", program="s.py", arguments=("-m", "c"), interpreter=("python",))),
    ("node --no-warnings dist/index.js -e", Launch(
        "file", program="dist/index.js", arguments=("-e",), interpreter=("node", "--no-warnings"))),
    ("bash start.sh -c", Launch("file", program="start.sh", arguments=("-c",), interpreter=("bash",))),
    ("./server -m x", Launch("file", program="./server", arguments=("-m", "x"))),
    ("mcp-server-git", Launch("file", program="mcp-server-git")),
    (f"docker run -i --rm -e A=B --env C img@{DIGEST} go", Launch(
        "docker", f"img@{DIGEST}", program="docker", arguments=("go",),
        interpreter=("docker", "run", "-i", "--rm", "-e", "A=B", "--env", "C"))),
]  # fmt: skip

REFUSED = [
    # Names that are no names of a registry: paths, URLs, repositories, aliases.
    ("npx ../x", "is no package of npm"),
    ("npx ./x", "is no package of npm"),
    ("npx /srv/x", "is no package of npm"),
    ("npx file:../x", "is no package of npm"),
    ("npx git+https://host.test/x.git", "is no package of npm"),
    ("npx github:user/x", "is no package of npm"),
    ("npx user/x", "is no package of npm"),
    ("npx https://host.test/x.tgz", "is no package of npm"),
    ("npx x@file:../y", "is no package of npm"),
    ("npx x@npm:y@1", "is no package of npm"),
    ("npx @a/../b", "is no package of npm"),
    ("npx @../b", "is no package of npm"),
    ("npx .hidden", "is no package of npm"),
    ("npx -- -g", "is no package of npm"),
    ("npx -p left -p ../x go", "is no package of npm"),
    ("npx -p left ../go", "is no name of a program"),
    ("uvx ../x", "is no package of PyPI"),
    ("uvx git+https://host.test/x.git", "is no package of PyPI"),
    ("uvx x@git+https://host.test/x.git", "is no package of PyPI"),
    ("uvx x@https://host.test/x.whl", "is no package of PyPI"),
    ("uvx x@../y", "is no package of PyPI"),
    ("uvx --from ./x go", "is no package of PyPI"),
    ("uvx --from file:///x go", "is no package of PyPI"),
    ("uvx --from x;python_version>'3' go", "is no package of PyPI"),
    ("uvx --from x ../go", "is no name of a program"),
    ("uvx --with ../y x", "is no package of PyPI"),
    ("uvx server.py", "is no package of PyPI"),
    ("pipx run https://host.test/x.py", "is no package of PyPI"),
    # Flags.
    ("npx -c left", "runs a shell"),
    ("npx --registry=https://host.test left", "npm configuration of this user"),
    ("npx --no-install left", "starts a local package"),
    ("npx --unheard left", "is not understood"),
    ("npx -yq left", "is not understood"),
    ("npx --yes=false left", "is not understood"),
    ("npx -p", "has no value"),
    ("npx -y", "has no package"),
    ("npx -p left", "has no package or program"),
    ("uvx", "has no package"),
    ("uvx --python 3.12 x", "the Python that licet runs on"),
    ("uvx --index-url https://host.test x", "pip configuration of this user"),
    ("uvx --from a --from b go", "names 2 packages"),
    ("uv run server.py", "name what it starts"),
    ("uv --directory /x run y", "name what it starts"),
    ("pipx install x", "only as `pipx run PACKAGE`"),
    ("pipx run --pip-args=--pre x", "pip configuration of this user"),
    ("python", "has no script"),
    ("python -c pass", "runs a text"),
    ("python -", "runs a text"),
    ("python -m", "has no module"),
    ("python -m ../x", "is no name of a module"),
    ("python -ic x", "is not understood"),
    ("node -e 1", "runs a text"),
    ("node -r ./hook.js s.js", "loads more code"),
    ("node --import=./hook.js s.js", "loads more code"),
    ("bash -c left", "runs a text"),
    ("bash -x s.sh", "is not understood"),
    # Programs that start or install something else.
    ("npm exec left", "may install at each start"),
    ("bunx left", "may install at each start"),
    ("env A=B left", "list the variables under `env`"),
    ("cmd /c npx left", "only starts another program"),
    ("sudo left", "only starts another program"),
    ("docker compose up", "only as `docker run"),
    ("docker run -d img", "without a pipe"),
    ("docker run --unheard img", "is not understood"),
    ("docker run --rm", "has no image"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "asked"), ASKED, ids=[case[0] for case in ASKED])
def test_a_command_is_read(command: str, asked: Launch) -> None:
    assert launch_of(command.split()) == asked


@pytest.mark.parametrize(("command", "reason"), REFUSED, ids=[case[0] for case in REFUSED])
def test_a_command_is_refused_with_the_reason(command: str, reason: str) -> None:
    with pytest.raises(LaunchError) as refusal:
        launch_of(command.split())
    assert reason in str(refusal.value)


@pytest.mark.parametrize("command", [[], [""], ["npx", "a\0b"], ["npx", "\u202eevil"]])
def test_a_command_that_is_no_text_for_a_program_is_refused(command: list[str]) -> None:
    with pytest.raises(LaunchError) as refusal:
        launch_of(command)
    assert str(refusal.value).isprintable()


def test_an_image_without_a_digest_is_warned_of() -> None:
    assert "IMAGE@sha256:" in image_warning(launch_of(["docker", "run", "img:1.2"]))
    assert image_warning(launch_of(["docker", "run", f"img@{DIGEST}"])) == ""
    assert image_warning(launch_of(["npx", "left"])) == ""
