"""The rewritten line shows its text whole and runs it as it is; a ticket serves once, for one text, for minutes."""

import asyncio
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hooks.lines import Desk
from licet.guard.open_call import CallNotOpen, restored
from licet.hooks import tickets as ticket_files
from licet.hooks.limits import MOST_TICKETS, TICKET_SECONDS
from licet.hooks.shell_line import NotAsLine, rewritten, shell_path
from licet.hooks.tickets import AgentShell, BadTicket, NoTicket, Ticket, Tickets, digest_of, expiry

SHELLS = [found for name in ("bash", "dash", "zsh") if (found := shutil.which(name, path="/bin:/usr/bin"))]
ID = "0123456789abcdef" * 2
TEXTS = [
    "echo hi",
    "",
    " ",
    "-n",
    "--",
    "'",
    "''",
    "'\\''",
    'it\'s "quoted" `twice` $(thrice) ${four} $five \\six',
    "cat <<'EOF'\nit's\n\tkept \\\nEOF\n",
    "\n\nlines\r\nof two kinds\n",
    "!history !! !$ ^a^b",
    "Grüße 世界 🎉 \u202etrailing",
    "a # b; c & d | e > f < g ( h ) { i } [ j ] * ? ~ = % @ :",
    "\x01\x1b[31mred\x7f",
    "'; touch planted; '",
    "\\",
    "\\'",
]


def ticket(text: str = "echo hi", **given: Any) -> Ticket:
    made: dict[str, Any] = {
        "agent": "claude", "session": "claude/s", "text_digest": digest_of(text), "shell": AgentShell("/bin/sh"),
        "directory": "/srv", "policy": "/srv/licet.yaml", "policy_digest": "sha256:0", "workdir": "/srv",
        "call": b"\x00call", "expires": expiry(),
    }  # fmt: skip
    return Ticket(**{**made, **given})


@pytest.fixture
def tickets(tmp_path: Path) -> Tickets:
    return Tickets(tmp_path / "tickets")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("text", TEXTS)
def test_the_client_gets_the_text_byte_for_byte(tmp_path: Path, shell: str, text: str) -> None:
    client = tmp_path / "it's a client"
    client.write_text('#!/bin/sh\nprintf "%s" "$3" > "$OUT"\nprintf "%s %s" "$1" "$2"\nexit 7\n')
    client.chmod(0o755)
    out = tmp_path / "out"
    for keeps in ("nothing", "directory", "shell"):
        line = rewritten(text, ID, [str(client)], AgentShell(shell, keeps), str(tmp_path / "no link"))
        assert text.replace("'", "'\\''") in line
        quoted = "'" + line.replace("'", "'\\''") + "'"
        for script in (line, f"eval {quoted}"):
            ended = subprocess.run(
                [shell, "-c", script], env={"OUT": str(out), "PATH": "/usr/bin:/bin"}, capture_output=True, cwd=tmp_path
            )
            assert (ended.returncode, ended.stdout, ended.stderr) == (7, f"line {ID}".encode(), b"")
            assert out.read_bytes() == text.encode()
    assert not (tmp_path / "planted").exists()


MORE_TEXTS = [
    *TEXTS,
    "\\",
    "true \\'; touch planted #",
    "a\\\\b\\\\\\",
    "\u2019; touch planted #",
    "'\u2018\u201a\u201b'",
    "\\\u2019\\",
]
FISH = shutil.which("fish")


@pytest.mark.parametrize("shell", [*SHELLS, pytest.param(FISH, marks=pytest.mark.skipif(not FISH, reason="no fish"))])
@pytest.mark.parametrize("text", MORE_TEXTS)
def test_a_line_for_any_shell_carries_the_text_byte_for_byte(tmp_path: Path, shell: str, text: str) -> None:
    client = tmp_path / "client"
    client.write_text('#!/bin/sh\nprintf "%s" "$3" > "$OUT"\nexit 7\n')
    client.chmod(0o755)
    out = tmp_path / "out"
    line = rewritten(text, ID, [str(client)], AgentShell(shell), other_shells=True, ends_shell=True)
    variables = {"OUT": str(out), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    ended = subprocess.run([shell, "-c", f"{line}; echo still here"], env=variables, capture_output=True, cwd=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, b"", b"")
    assert out.read_bytes() == text.encode()
    assert not (tmp_path / "planted").exists()


@given(text=st.text(alphabet=st.sampled_from("a\\'\u2018\u2019\u201a\u201b\u201c\"`$;|& \n"), max_size=12))
def test_no_text_ends_its_quotes_in_another_shell(text: str) -> None:
    line = rewritten(text, ID, ["client"], AgentShell("/bin/bash"), other_shells=True).removeprefix(
        f"client line {ID} "
    )
    pieces = re.findall("'[^']*'|\"[^\"]*\"", line)
    assert "".join(pieces) == line
    for piece in pieces:
        if piece[0] == '"':  # nothing that PowerShell expands, or takes for its end
            assert set(piece[1:-1]) <= set("\\'\u2018\u2019\u201a\u201b")
        else:
            assert not set(piece[1:-1]) & set("\u2018\u2019\u201a\u201b")
            assert not piece.endswith("\\'")  # in fish the quote would go on
            assert "\\\\" not in piece
    assert shlex.split(line) == [text]


# Which shell ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "own", ["/usr/bin/fish", "/usr/bin/nu", "xonsh", "/bin/tcsh", "/opt/pwsh", "/sbin/nologin", ""]
)
def test_a_shell_that_may_read_lines_otherwise_is_refused(own: str) -> None:
    with pytest.raises(NotAsLine) as wrong:
        shell_path("$SHELL", own)
    assert "SHELL=/bin/bash" in str(wrong.value)


@pytest.mark.parametrize(("own", "found"), [("/bin/bash", "/bin/bash"), ("sh", "/bin/sh"), ("/no/zsh", "/bin/sh")])
def test_a_shell_that_reads_lines_as_they_are_quoted_is_taken(own: str, found: str) -> None:
    assert shell_path("$SHELL", own) == found


def test_the_login_shell_counts_where_the_agent_names_none() -> None:
    other = next((one.pw_uid for one in pwd.getpwall() if one.pw_shell.endswith(("/nologin", "/false"))), None)
    if other is None:
        pytest.skip("every user has a shell here")
    with pytest.raises(NotAsLine) as wrong:
        shell_path("$SHELL", user=other)
    assert "chsh" in str(wrong.value)
    assert shell_path("bash", user=other) == "/bin/bash"


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x" * 200_000])
def test_what_no_line_can_carry_is_refused(text: str) -> None:
    with pytest.raises(NotAsLine):
        rewritten(text, ID, ["licet"], AgentShell("/bin/sh"))


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", ["plain", 'it\'s $(touch planted) `x` "y"\n\n', "-P"])
def test_the_agents_shell_goes_where_the_link_leads(tmp_path: Path, tickets: Tickets, shell: str, name: str) -> None:
    place = tmp_path / name
    place.mkdir()
    issued = tickets.issue(ticket())
    kind = AgentShell(shell, "directory")
    line = rewritten("echo", issued, ["true"], kind, tickets.directory_link(issued))
    script = f"{line}; echo $?; pwd -P; printf end"
    bare = subprocess.run([shell, "-c", script], cwd=tmp_path, capture_output=True)
    assert bare.stdout.decode() == f"0\n{tmp_path}\nend"
    tickets.tell_directory(issued, str(place))
    gone = subprocess.run([shell, "-c", f"cd() {{ echo mine; }}; set -e; {script}"], cwd=tmp_path, capture_output=True)
    assert gone.stdout.decode() == f"0\n{place}\nend"
    assert not list(tmp_path.rglob("planted"))


# Tickets -------------------------------------------------------------------------------------------------------------


def reason(work: Callable[[], object]) -> str:
    with pytest.raises(BadTicket) as refused:
        work()
    assert "\n" not in str(refused.value)
    return refused.value.why


def test_a_ticket_serves_once(tickets: Tickets) -> None:
    made = ticket(reads_only=True)
    name = tickets.issue(made)
    assert tickets.redeem(name, "echo hi") == made
    assert reason(lambda: tickets.redeem(name, "echo hi")) == "used"


def test_of_many_at_once_one_gets_it(tickets: Tickets) -> None:
    name = tickets.issue(ticket())

    def attempt(_: int) -> str:
        try:
            tickets.redeem(name, "echo hi")
        except BadTicket as refused:
            return refused.why
        return "served"

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(attempt, range(64)))
    assert sorted(found) == ["served"] + ["used"] * 63


def test_a_text_that_was_changed_uses_the_ticket_up(tickets: Tickets) -> None:
    name = tickets.issue(ticket())
    with pytest.raises(BadTicket) as refused:
        tickets.redeem(name, "echo hi ")
    used = refused.value.ticket
    assert used is not None
    assert (refused.value.why, used.call) == ("other text", b"\x00call")
    assert reason(lambda: tickets.redeem(name, "echo hi")) == "used"


@pytest.mark.parametrize("seconds", [-1.0, -TICKET_SECONDS - 60, 10 * TICKET_SECONDS])
def test_a_ticket_expires(tickets: Tickets, seconds: float) -> None:
    name = tickets.issue(ticket(expires=expiry() - TICKET_SECONDS + seconds))
    assert reason(lambda: tickets.redeem(name, "echo hi")) == "expired"


@pytest.mark.parametrize("name", ["", "0" * 32, "../tickets", "0" * 31 + "/", f"{ID}\n", ID.upper(), f"{ID}.used"])
def test_no_other_name_is_a_ticket(tickets: Tickets, name: str) -> None:
    tickets.issue(ticket())
    assert reason(lambda: tickets.redeem(name, "echo hi")) == "unknown"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"agent": 1}'])
def test_a_ticket_that_cannot_be_read_is_refused(tickets: Tickets, content: bytes) -> None:
    name = tickets.issue(ticket())
    (tickets.directory / name).write_bytes(content)
    assert reason(lambda: tickets.redeem(name, "echo hi")) == "unreadable"


def test_a_link_is_no_ticket(tickets: Tickets) -> None:
    name, other = tickets.issue(ticket()), ID
    (tickets.directory / other).symlink_to(name)
    assert reason(lambda: tickets.redeem(other, "echo hi")) == "unreadable"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_ticket_of_another_user_is_refused(tickets: Tickets) -> None:
    name = tickets.issue(ticket())
    os.chown(tickets.directory / name, 65534, 65534)
    assert reason(lambda: tickets.redeem(name, "echo hi")) == "other user"
    os.chown(tickets.directory, 65534, 65534)
    with pytest.raises(NoTicket):
        tickets.issue(ticket())


def test_tickets_are_for_their_user_alone_and_bounded(tickets: Tickets) -> None:
    tickets.directory.mkdir(mode=0o755)
    names = [tickets.issue(ticket()) for _ in range(MOST_TICKETS + 5)]
    assert os.stat(tickets.directory).st_mode & 0o777 == 0o700
    assert os.stat(tickets.directory / names[-1]).st_mode & 0o777 == 0o600
    assert len(os.listdir(tickets.directory)) <= MOST_TICKETS
    assert tickets.redeem(names[-1], "echo hi")
    assert reason(lambda: tickets.redeem(names[0], "echo hi")) == "unknown"


def test_old_tickets_are_removed(tickets: Tickets) -> None:
    name = tickets.issue(ticket())
    os.utime(tickets.directory / name, (1, 1))
    tickets.issue(ticket())
    assert reason(lambda: tickets.redeem(name, "echo hi")) == "unknown"


def test_a_full_disk_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NoTicket):
        Tickets(tmp_path / "file").issue(ticket())
    code = (
        "import resource, sys; from pathlib import Path; from licet.hooks.tickets import *\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "made = Ticket(agent='a', session='s', text_digest='', shell=AgentShell('/bin/sh'), directory='/', policy='',"
        " policy_digest='', workdir='/')\n"
        "try: Tickets(Path(sys.argv[1])).issue(made)\n"
        "except NoTicket as wrong: print(wrong)\n"
    )
    place = tmp_path / "tickets"
    said = subprocess.run([sys.executable, "-c", code, str(place)], capture_output=True, text=True, check=True)
    assert said.stdout == "the ticket cannot be written: File too large\n"
    assert os.listdir(place) == []


def test_the_call_of_a_ticket_belongs_to_its_session(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    name, _ = asyncio.run(desk.opened("echo hi"))
    found = desk.tickets.redeem(name, "echo hi")
    with pytest.raises(CallNotOpen):
        restored(desk.gate().session("claude/another"), found.call)


def test_digests_and_names_are_those_of_the_text() -> None:
    assert digest_of("a") != digest_of("a ")
    assert digest_of("\udcff")  # what no hook ever decides has a digest that matches nothing
    assert replace(ticket(), expires=0.0) != ticket()
    assert ticket_files.expiry() > 0
