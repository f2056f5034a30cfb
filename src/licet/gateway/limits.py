"""The limits of the gateway: sizes, counts and times."""

# What one client may ask for.
MOST_RUNNING = 200  # requests; of one client at once
MOST_SUBSCRIPTIONS = 1000  # URIs; that one client subscribes to, and changes kept until a stream is acknowledged
MOST_PAGE_ITEMS = 5_000  # definitions; in one page of a list: the SDKs of clients read the first page alone
MOST_PAGE_BYTES = 4 << 20  # bytes; of the definitions in one page of a list
UNREAD_BYTES = 8 << 20  # bytes; unread by a client, from which on progress and log messages are left out
UNREAD_MESSAGES = 10_000  # messages; unread by a client, from which on progress and log messages are left out
LAST_WORDS_SECONDS = 2.0  # seconds; for a client to read the last messages when the gateway ends

# Questions to the client.
ASK_SECONDS = 50.0  # seconds; for an answer of a client whose own request waits meanwhile
GIVE_UP_SECONDS = 60.0  # seconds; after which many clients give up a request of theirs
LEAST_ASK_SECONDS = 2.0  # seconds; for an answer at least, however long the client's own request has waited
REPEAT_SECONDS = 600.0  # seconds; until a client of 2026 repeats a request with its answers: it has none open meanwhile
MOST_QUESTIONS = 100  # questions; that wait for an answer at once
MOST_WAITING_CALLS = 100  # calls; of one client that wait until it repeats them with its answers
MOST_QUESTION_BYTES = 1 << 20  # bytes; of one question of a server
MOST_FORM_BYTES = 1 << 16  # bytes; of the schema of a form
DEEPEST_FORM = 8  # levels; of the schema of a form
LONGEST_FORM_MESSAGE = 4000  # characters; of the message of a form that are shown
LONGEST_FORM_TEXT = 1000  # characters; of a title or a description in a form that are shown
LONGEST_FORM_KEY = 200  # characters; of a key in a form, and of a host in a receipt
LONGEST_URL = 2000  # characters; of the address of a page that a person is sent to
LONGEST_ARGUMENTS = 16_000  # characters; of the arguments that a person is shown before an approval through the client
MOST_DELETES_SHOWN = 20  # lines; of deletes that a person is shown before an approval through the client

# Servers while they run.
START_SECONDS = 60.0  # seconds; for a server to open, to list its definitions, and to take a subscription again
RESTART_PAUSES = (0.5, 1.0, 2.0, 5.0, 15.0, 30.0)  # seconds; before each further start of a server that has ended
HEALTHY_SECONDS = 60.0  # seconds; that a server runs until the pauses before its starts begin again
LOOK_AGAIN_SECONDS = 5.0  # seconds; until a server that did not say what changed is asked again
STANDING_SECONDS = 5.0  # seconds; between two looks at the standing approval that a server was started under
POLICY_LOOK_SECONDS = (
    1.0  # seconds; between two looks whether files of the policy changed, besides those before requests
)
TOOLS_LOOK_SECONDS = 5.0  # seconds; between two looks which own tools can run here, besides those before each list
GRACE_SECONDS = 5.0  # seconds; for an answer beyond the time of the call, so that the clock of the gate ends it first
SETTING_SECONDS = 30.0  # seconds; for a server to take a log level, or the end of a subscription
ENVELOPE_BYTES = 1 << 16  # bytes; of an answer besides twice the result, which may be written with escapes

# Reports and receipts.
MOST_REPORTS = 200  # reports; about different messages of one client that were not passed on
REPORTS_AT_ONCE = 200  # reports; about messages of one server that were dropped, at once
REPORTS_A_SECOND = 5  # reports; about messages of one server that were dropped, a second from then on
LONGEST_REPORT = 500  # characters; of a line about a server or a definition, which may quote the server
LONGEST_REPORTED = 200  # characters; of a client's text in errors and reports
LONGEST_CLIENT_ERROR = 2000  # characters; of a client's error that a server is told
LONGEST_PROGRESS = 500  # characters; of a server's message about its progress
MOST_REMEMBERED = 1000  # messages; of servers outside of results, that a session remembers: later ones are unknown
LONGEST_TASK = 100_000  # characters; of all that a client says is the task
LONGEST_CLAIM = 200  # characters; of what a client says of itself, in receipts
MOST_SUMMARY_LINES = 30  # lines; of the summary when observing ends
MOST_OBSERVED_RULES = 20  # rules; that one receipt of an observed call has
LONGEST_OBSERVED_RULE = 1000  # characters; of one rule in a receipt of an observed call
