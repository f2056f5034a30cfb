"""Tools that place a secret and look at what comes back. They say it backwards, which redaction does not read."""

import subprocess
import time
from typing import Any

from licet import Context, Refused, SyncContext, tool

NEEDS = ["secret:read:KEY", "secret:read:PIN", "network:*:echo.test", "process:exec:*", "env:read:GIVEN"]


@tool(needs=NEEDS, effect="write_limited")
async def fetch_echo(ctx: Context, path: str, twice: bool = False, pin: bool = False) -> list[str]:
    """Place a secret in a header and a body, and say what the answer holds."""
    key = ctx.secrets.ref("PIN" if pin else "KEY")
    url = f"https://echo.test/{path}"
    try:
        reply = await ctx.fetch(url, "POST", headers={"Authorization": f"Bearer {key}"}, json={"key": key})
        if twice:
            reply = await ctx.fetch(f"https://echo.test/{path}")
    except Refused as refusal:
        return [backwards(f"{refusal} {refusal.use}")]
    parsed = repr(reply.json()) if "json" in path else ""
    return [backwards(text) for text in (reply.url, repr(dict(reply.headers)), reply.text, parsed)]


@tool(needs=NEEDS, effect="write_limited")
async def stream_echo(ctx: Context, path: str) -> list[str]:
    """Place a secret, and read the answer piece by piece."""
    headers = {"Authorization": f"Bearer {ctx.secrets.ref('KEY')}"}
    async with ctx.fetch.stream(f"https://echo.test/{path}", headers=headers) as answer:
        pieces = [piece.decode("latin-1") async for piece in answer]
    return [backwards(repr(dict(answer.headers))), *map(backwards, pieces)]


@tool(needs=NEEDS, effect="write_limited")
async def spawn_echo(ctx: Context, script: str) -> list[str]:
    """Place a secret in the environment of a program, and say what it wrote."""
    ended = await ctx.process.spawn("/bin/sh", ["-c", script], env={"GIVEN": ctx.secrets.ref("KEY")})
    return [backwards(ended.stdout_bytes.decode("latin-1")), backwards(ended.stderr_bytes.decode("latin-1"))]


@tool(needs=NEEDS, effect="write_limited")
def popen_echo(ctx: SyncContext, script: str, by_line: bool = False) -> list[str]:
    """The same as any Python code does it."""
    with subprocess.Popen(
        ["/bin/sh", "-c", script], env={"GIVEN": ctx.secrets.ref("KEY")}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, stdin=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        if by_line:
            assert running.stdin is not None
            assert running.stdout is not None
            said = []
            for _ in range(3):
                running.stdin.write("go\n")
                running.stdin.flush()
                said.append(running.stdout.readline())
            running.stdin.close()
            return [backwards("".join(said)), backwards(running.stdout.read())]
        out, err = running.communicate()
    return [backwards(out), backwards(err)]


@tool(needs=NEEDS, effect="write_limited")
def popen_late(ctx: SyncContext) -> list[Any]:
    """Wait for a program first, and read what it wrote afterwards; another is not read to its end."""
    command = ["/bin/sh", "-c", 'printf "%s" "$GIVEN"; head -c 50000 /dev/zero | tr "\\0" x']
    with subprocess.Popen(command, env={"GIVEN": ctx.secrets.ref("KEY")}, stdout=subprocess.PIPE) as running:
        code = running.wait()
        assert running.stdout is not None
        out = running.stdout.read()
    command = ["/bin/sh", "-c", 'while echo "$GIVEN"; do :; done; exit 3']
    with subprocess.Popen(command, env={"GIVEN": ctx.secrets.ref("KEY")}, stdout=subprocess.PIPE) as endless:
        assert endless.stdout is not None
        line = endless.stdout.readline()
        endless.stdout.close()
        for _ in range(200):
            if endless.poll() is not None:
                break
            time.sleep(0.05)
    return [code, len(out), backwards(out[:40].decode()), backwards(line.decode()), endless.returncode != 0]


def backwards(text: str) -> str:
    return text[::-1]
