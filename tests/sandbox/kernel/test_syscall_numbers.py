"""The numbers of system calls are those of the kernel's own headers, where a machine has them.

A wrong number would allow another call than the one that is meant: the filter of an architecture that nobody has at
hand is held to such headers as well as the one that runs here.
"""

import re
from pathlib import Path

import pytest

from licet.sandbox.kernel.system_calls import NUMBERS

HEADERS = {
    # Every architecture that came later shares this one; aarch64 is among them.
    "aarch64": [Path("/usr/include/asm-generic/unistd.h")],
    "x86_64": [Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h")],
}
DEFINED = re.compile(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)\b", re.MULTILINE)
# How many there are, room for single architectures, and a call with its arguments in another order, of some of them.
NO_CALLS = {"syscalls", "arch_specific_syscall", "sync_file_range2"}
TIMES_FOR_32_BITS = range(403, 424)
OTHER_NAMES = {"fstatat": "newfstatat"}


def of_the_kernel(machine: str) -> dict[str, int]:
    found = next((header for header in HEADERS[machine] if header.is_file()), None)
    if found is None:
        pytest.skip(f"no headers of the kernel for {machine} here")
    numbers = {name: int(number) for name, number in DEFINED.findall(found.read_text(encoding="utf-8"))}
    return {
        OTHER_NAMES.get(name, name): number
        for name, number in numbers.items()
        if name not in NO_CALLS and number not in TIMES_FOR_32_BITS
    }


@pytest.mark.parametrize("machine", NUMBERS)
def test_calls_have_the_numbers_of_the_headers(machine: str) -> None:
    known, ours = of_the_kernel(machine), NUMBERS[machine]
    both = known.keys() & ours.keys()
    assert len(both) > 290
    assert {name: ours[name] for name in both} == {name: known[name] for name in both}


@pytest.mark.parametrize("machine", NUMBERS)
def test_what_the_headers_do_not_name_has_the_number_of_nothing_else(machine: str) -> None:
    known = of_the_kernel(machine)
    taken = {number: name for name, number in known.items()}
    others = {name: number for name, number in NUMBERS[machine].items() if name not in known}
    assert {name: taken[number] for name, number in others.items() if number in taken} == {}


def test_new_calls_have_one_number_everywhere() -> None:
    later = [{name: number for name, number in numbers.items() if number >= 424} for numbers in NUMBERS.values()]
    assert later[0] == later[1]
    # Headers of distributions are often older than these.
    named = {"cachestat": 451, "futex_requeue": 456, "mseal": 462, "open_tree_attr": 467, "listns": 470}
    assert {name: later[0][name] for name in named} == named
