"""A host that forks: each process has receipt ids of its own, and no lock that a thread of the other one holds."""

import json
from pathlib import Path

import warm
from licet.backends.ledger.reader import LedgerReader, verify_ledger

FORK = """
import asyncio, json, os, sys
from pathlib import Path
from licet import Backends, Gate, load_manifest, tool

@tool(needs=[], effect="read_only", sandbox="native")
async def add(a: int) -> int:
    return a + 1

folder = Path(sys.argv[1])
(folder / "a.json").write_text(json.dumps({"agent": "a", "capabilities": {"tools": ["add"], "native": ["add"]}}))
gate = Gate(load_manifest(folder / "a.json"), [add], Backends.local(folder / "state"))
delegate = gate.session("s").delegate(agent="other", allow=[])

async def calls():
    async with gate.session("s") as session, delegate:
        return [(await one.call("add", {"a": 1})).receipt for one in (session, delegate) for _ in range(3)]

found = asyncio.run(calls())
children = []
for _ in range(2):
    reading, writing = os.pipe()
    if not os.fork():
        os.write(writing, json.dumps(asyncio.run(calls())).encode())
        gate.ports.ledger.close()
        os._exit(0)
    os.close(writing)
    children.append(reading)
found += [*asyncio.run(calls()), *(name for end in children for name in json.load(open(end)))]
gate.ports.ledger.close()
print(json.dumps(found))
"""


def test_no_two_forked_hosts_use_the_same_receipt_id(store_path: Path) -> None:
    found = json.loads(warm.run(FORK, [str(store_path)]).stdout)
    assert len(found) == len(set(found)) == 24
    ledger = store_path / "state" / "ledger.sqlite"
    assert verify_ledger(ledger, (store_path / "state" / "ledger.pub").read_text().strip()).ok
    with LedgerReader(ledger) as reader:
        assert {row.id for row in reader.entries()} == set(found)


LOCKS = """
import asyncio, json, os, signal, sys, threading
from pathlib import Path
from licet import Backends, Gate, load_manifest, tool
from licet.backends.http import Lookups
from licet.core.decision.request import Request
from licet.guard import bind, grant
from licet.sandbox.workers import engine, pool
from licet.adapters import approver

folder = Path(sys.argv[1])
(folder / "a.json").write_text(json.dumps({"agent": "a", "capabilities": {"tools": []}}))
gate = Gate(load_manifest(folder / "a.json"), [], Backends.memory())
lookups = Lookups(most=1, ask=lambda *_, **__: held.wait(60))
held, ready = threading.Event(), threading.Event()
locks = {
    "grant": lambda: grant._MAKING, "bind": lambda: bind._MAKING, "gate": lambda: gate._loading,
    "pool": lambda: engine.pool._lock, "workers": lambda: gate.ports.sandbox._preparing,
    "ledger": lambda: gate.ports.ledger._lock, "budgets": lambda: gate.ports.budgets._lock,
    "approver": lambda: approver._installing, "lookups": lambda: lookups._lock,
}

def hold():
    taken = [find() for find in locks.values()]
    for lock in taken:
        lock.acquire()
    ready.set()
    held.wait()
    for lock in taken:
        lock.release()

busy = threading.Thread(target=lambda: asyncio.run(lookups.find("a.test", 1)), daemon=True)
busy.start()
while not lookups._threads:
    pass
holder = threading.Thread(target=hold)
holder.start()
ready.wait()
reading, writing = os.pipe()
if not os.fork():
    stuck = [name for name, find in locks.items() if not find().acquire(timeout=0)]
    os.write(writing, json.dumps([stuck, lookups._threads]).encode())
    os._exit(0)
os.close(writing)
print(open(reading).read())
held.set()
holder.join()
"""


def test_a_lock_that_a_thread_of_the_parent_holds_is_free_in_the_child(store_path: Path) -> None:
    assert json.loads(warm.run(LOCKS, [str(store_path)]).stdout) == [[], 0]
