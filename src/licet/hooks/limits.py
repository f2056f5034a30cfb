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
