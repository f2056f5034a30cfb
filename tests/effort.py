"""How much the tests try: a sample by default, everything with LICET_LONG=1."""

import os

LONG = os.environ.get("LICET_LONG") == "1"
EXAMPLES = 3000 if LONG else 15  # of each property
