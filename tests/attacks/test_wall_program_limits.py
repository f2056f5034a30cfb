"""A program uses up what there is: processes, memory, time, files, output, scratch."""

import os
import resource

import pytest

from attacks.walled_programs import Programs, both_kinds, needs_namespaces, open_programs

FORKS = """
import time
made = 0
for _ in range(120):
    try:
        if os.fork() == 0:
            time.sleep(20); os._exit(0)
    except OSError as e:
        break
    made += 1
time.sleep(float(sys.argv[1]))
print('made', made, flush=True)
os._exit(0)
"""


@pytest.mark.who
@both_kinds
def test_a_fork_bomb(kind: str) -> None:
    if os.getuid() == 0:
        pytest.skip("the kernel does not hold root to a number of processes; see below, and the run as another user")
    assert "made 120" in open_programs().python(FORKS, "0")
    made = int(Programs(kind, limits={"processes": 30}).python(FORKS, "0").split()[1])
    assert 10 < made <= 40  # the kernel counts all tasks of the user: whichever of them end meanwhile leave room


@needs_namespaces
@pytest.mark.skipif(os.getuid() != 0, reason="the kernel holds everybody else to a number of processes; see above")
def test_a_fork_bomb_of_root_is_ended() -> None:
    walled = Programs("namespaces", limits={"processes": 30})
    assert "made 120" in open_programs().python(FORKS, "0")
    assert "made" not in walled.python(FORKS, "20")  # it is ended before it says so, however late somebody counts
    assert "made 20" in walled.python(FORKS.replace("120", "20"), "1")


@both_kinds
@pytest.mark.sampled(1)
def test_memory(kind: str) -> None:
    code = "x = bytearray(600 << 20); print('GOT', len(x))"
    assert "GOT" in open_programs().python(code)
    assert "MemoryError" in Programs(kind, limits={"memory_mb": 200}).python(code)


@both_kinds
@pytest.mark.sampled(1)
def test_time_of_the_processor(kind: str) -> None:
    ended = Programs(kind, limits={"cpu_seconds": 1}, seconds=20.0).run("sh", "-c", "while :; do :; done")
    assert (ended.exit_code, ended.timed_out) in ((-24, False), (-9, False))


@both_kinds
@pytest.mark.sampled(1)
def test_open_files(kind: str) -> None:
    code = "x = []\nwhile True: x.append(os.dup(0))" if resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 64 else "1/0"
    assert "Too many open files" in Programs(kind, limits={"open_files": 32}).python(code)


@both_kinds
@pytest.mark.sampled(1)
def test_the_size_of_a_file(kind: str) -> None:
    code = "with open(os.environ['TMPDIR'] + '/x', 'wb') as f: f.write(bytes(8 << 20))\nprint('ALL')"
    assert "ALL" in Programs(kind, limits={"file_mb": 16}).python(code)
    assert "ALL" not in Programs(kind, limits={"file_mb": 4}).python(code)


@needs_namespaces
def test_scratch_is_full_at_some_point() -> None:
    code = "for i in range(8): open(os.environ['TMPDIR'] + f'/{i}', 'wb').write(bytes(1 << 20))\nprint('ALL')"
    assert "No space left" in Programs("namespaces", limits={"scratch_mb": 4}).python(code)
    assert "ALL" in Programs("namespaces", limits={"scratch_mb": 16}).python(code)


@both_kinds
@pytest.mark.sampled(1)
def test_a_flood_of_output(kind: str) -> None:
    for seconds in (0.3, 2.0, 8.0, 32.0):  # longer where the machine has no time to start it before
        ended = Programs(kind, output_bytes=1000, seconds=seconds).run("yes")
        if ended.stdout_bytes:
            break
    assert (len(ended.stdout_bytes), ended.truncated, ended.timed_out) == (1000, True, True)


@both_kinds
def test_scratch_is_not_shared_and_does_not_stay(kind: str) -> None:
    leave = "open(os.environ['TMPDIR'] + '/left', 'w').write('x'); print(os.listdir(os.environ['TMPDIR']))"
    walled = Programs(kind)
    assert walled.python(leave) == "['left']\n"
    assert walled.python("print(os.listdir(os.environ['TMPDIR']))") == "[]\n"
