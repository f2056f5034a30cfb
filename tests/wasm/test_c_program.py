"""A program in C as a tool, where a compiler for WASI is installed: clang with wasi-libc, or zig."""

import shutil
import subprocess
from pathlib import Path

import pytest

from licet import Tool
from sandbox.levels import call, gate, local_backends, needs_walls

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    int words = 0, inside = 0, c;
    while ((c = getchar()) != EOF) {
        if (c == ' ' || c == '"') inside = 0;
        else if (!inside) { inside = 1; words++; }
    }
    char note[64] = "";
    FILE *file = fopen("note.txt", "r");
    if (file && !fgets(note, sizeof note, file)) return 1;
    const char *colour = getenv("COLOUR"), *token = getenv("TOKEN");
    printf("{\"words\": %d, \"note\": \"%s\", \"colour\": \"%s\", \"token\": %s}", words, note,
           colour ? colour : "", token ? "true" : "false");
    return 0;
}
"""
COMPILERS = (("zig", "cc", "-target", "wasm32-wasi"), ("clang", "--target=wasm32-wasi"))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    needs_walls()
    (tmp_path / "code").mkdir()
    source, made = tmp_path / "code" / "words.c", tmp_path / "code" / "words.wasm"
    source.write_text(SOURCE)
    for compiler, *options in COMPILERS:
        if found := shutil.which(compiler):
            ended = subprocess.run([found, *options, "-O1", str(source), "-o", str(made)], capture_output=True)
            if ended.returncode == 0:
                return made
    pytest.skip("no compiler for WASI is installed")


def test_a_program_in_c_reads_its_input_its_files_and_its_variables(program: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "note.txt").write_text("rain by noon")
    needs = ["fs:read:${workdir}", "env:read:COLOUR"]
    tool = Tool.wasm(str(program), needs=needs, effect="read_only", sandbox="isolated")
    backends = local_backends(tmp_path / "state", environ={"COLOUR": "green", "TOKEN": "secret"})
    result = call(gate(work, "isolated", tool, backends=backends), "words", {"text": "big world"})
    assert result.error == ""
    assert result.value == {"words": 6, "note": "rain by noon", "colour": "green", "token": False}
