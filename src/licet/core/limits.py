"""What bounds policy, decisions and records, whoever wrote them."""

# Rules and sets
LONGEST_PATH = 4096  # characters of a path in a rule or use, as PATH_MAX: its ancestors take quadratic memory
# Hosts without ports on one side and ports without hosts on the other overlap in a box for each pair. No other input
# has an overlap that is much larger than itself.
MOST_BOXES = 100_000  # pairs of hosts and ports in the overlap of two sets, besides their own size
# The grant of each tool has every deny of the manifest. Without a limit, a file of 200 KB with thousands of tools and
# denies would take gigabytes. A pair is one grant and one rule or deny in it.
MOST_PAIRS = 1_000_000  # rules and denies in the grants of all tools of one manifest together
MOST_PARTS = 150_000  # segments of all paths and names in the rules of one manifest: each is compared with others

# Policy
LONGEST_SECONDS = 100 * 366 * 86400  # seconds of any time or lifetime, as clocks accept them; longer ones are cut
LONGEST_RANGE = 500  # characters of a range of versions: each clause takes time in every comparison
MOST_STANDING_DAYS = 30  # days that a standing approval of deletes holds
MOST_SCHEMA_NODES = 5000  # parts of the schema of a tool that are read to tie its arguments
MAX_ASKS = 10  # questions of a server to the client in one call, if the policy states no other number
MOST_ASKS = 1000  # questions of a server in one call that a policy can allow: a receipt lists them all
DEEPEST_LOCK = 128  # levels of lists and mappings in a lock; messages of servers may be nested 100 deep
MOST_HIDDEN = 50  # hidden characters that are named; a text with more of them is refused or reported anyhow
LONGEST_SHOWN_NAME = 100  # characters of a server's name for something in a message
LONGEST_ON_A_LINE = 100  # characters of two texts on one line of a review; longer ones are shown line by line

# Decisions and reviews
MOST_OF_A_GROUND = 1000  # characters of one ground of a decision
MOST_DELETES_ASKED = 20  # deletes that one question lists; any further one asks when it happens
MOST_TOOLS_IN_A_FIX = 5  # tools that one fix lists for removal from a bundle
MOST_ROUNDS = 3  # edits that one proposal makes in turn: each may reveal the next one
MOST_TOOLS_ON_A_LINE = 3  # tools that a line about all of a server names
LONGEST_DRAFTED_NAME = 60  # characters of a name in a line of a drafted policy

# Records
MOST_PURPOSE = 500  # characters of the purpose of a session
MOST_TEXTS = 1000  # different capabilities that one tally of refusals counts separately
DELETES_SHOWN = 3  # paths of refused deletes in one message; the receipt has more
MOST_DIGITS = 18  # digits of a count in a search that are read

# Flow
SHORT_VALUE = 3  # characters; a shorter value stands in a text only as a whole, since it stands in most by chance
LONGEST_RUN_OF_MARKS = 30  # combining marks after one letter, as in the stream-safe format of Unicode
LONGEST_NUMBER = 40  # characters of a number that is compared by value
LONGEST_DATE = 80  # characters of a date that is compared by month and day
MOST_REMEMBERED = 8 * 2**20  # characters of results that one session remembers: the oldest are forgotten first
LONG_UNREAD = 64 << 10  # bytes of results whose text was not taken out; more is done in a thread
LONG_REMEMBERED = 1 << 20  # characters of results; questions about more are asked in a thread
MOST_UNREAD = 64  # results that are kept before their text is taken out of them
MOST_TAINTS = 3  # results that are named as those that tainted a session
MOST_FOUND = 20  # places where one value was found that a judgement names
LONGEST_NAME_IN_A_RESULT = 64  # characters of a name, an id or an address in a result; a longer one is a letter
LONGEST_ACK = 200  # characters of a confirmation
MOST_WORDS_OF_A_NAME = 7  # words of each of these
MOST_WORDS_PARSED = 5000  # words with the host of a URL that are parsed in one result to find it
MOST_COMPARED = 1 << 20  # characters that are compared to see whether a value is made of the arguments of a call
FEW_SECRETS = 64  # secret values that are looked for one by one; for more, a text is searched once for all
MOST_SECRET_STEPS = 16 << 20  # steps of the search for secret values in one call; more cannot be checked
MOST_RECORDS = 10  # values of one call of which a person is shown the record
SHORTEST_SECRET = 6  # characters of a secret value that is looked for in arguments
DEEPEST_POINTER = 200  # characters of a pointer into a result, after which it is cut
LONGEST_JUDGED = 500  # characters of a value, and of the record that it stands in, that a question shows
