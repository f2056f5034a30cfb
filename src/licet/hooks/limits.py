"""The limits of hooks: of payloads, sessions, tickets, and of the time that a decision may take."""

HOOK_SECONDS = 10.0  # from an event to its answer; later, a call is refused
INSTALLED_SECONDS = 30  # the time-out that `licet hooks install` sets in the agent's settings
MOST_PAYLOAD = 8 << 20  # bytes of one event
MOST_LIST_BYTES = 4 << 20  # of the list of projects and policies
MOST_SESSIONS = 2000  # kept sessions of agents; the oldest are removed first
SESSION_DAYS = 30  # after which a session without an event is forgotten
MOST_OPEN_CALLS = 1000  # of one session
UNKNOWN_AFTER_SECONDS = 3600.0  # a call whose end nobody has reported by then is closed as unknown
MOST_OF_A_REASON = 2000  # characters of a refusal that a model is shown
TICKET_SECONDS = 300.0  # from the decision about a shell line to its start: a person may be asked in between
MOST_TICKETS = 1000  # kept tickets of one user, with those that were used; the oldest are removed first
MOST_TICKET_BYTES = 64 << 20  # of one ticket: it has the call, with its arguments
LONGEST_LINE = 100_000  # bytes of a rewritten line: the kernel takes no argument of more than 128 KiB
MOST_STATE_BYTES = 16 << 20  # of what a shell keeps for the next line
SCRATCH_LOOK_SECONDS = 0.5  # between two looks at how much a session has in scratch, and at least 20 times one look
REFUSALS_SHOWN = 5  # of those that the proxy met while a line ran
