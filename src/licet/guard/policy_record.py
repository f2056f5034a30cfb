"""What the ledger has about a policy that was loaded again, or withdrawn, while its process runs.

Each receipt has the digest of its manifest; this entry says when, and in the place of what, a manifest came into force.
"""

from licet.core.algebra.scope import visible
from licet.core.decision.decision import PolicyLoaded, PolicyWithdrawn
from licet.core.ledger.entry import Entry, EventFact, time_text
from licet.core.limits import MOST_OF_A_GROUND
from licet.guard.facts import GateFacts, SessionFacts

POLICY_CHANGE = "licet policy"  # what the ledger calls it; no tool can have this name, since names have no spaces


def policy_entry(gate: GateFacts, session: SessionFacts, manifest: str, before: str, why: str) -> Entry:
    """The entry in a session: the digest `manifest` came into force in the place of `before`, or `why` it did not."""
    refused = visible(why)[:MOST_OF_A_GROUND]
    if refused:
        event = EventFact(kind=PolicyWithdrawn.__name__, reason="MANIFEST_CHANGED", rule=refused)
    else:
        event = EventFact(kind=PolicyLoaded.__name__, rule=f"in the place of {before}")
    return Entry(
        kind="receipt",
        id=gate.next_receipt(),
        agent=session.agent,
        session=session.id,
        tool=POLICY_CHANGE,
        time=time_text(gate.clock.now()),
        manifest=manifest,
        caller=session.caller,
        verdict="deny" if refused else "allow",
        reason="MANIFEST_CHANGED" if refused else "ALLOWED",
        rules=(refused,) if refused else (),
        events=(event,),
        code="denied" if refused else "ok",
    )
