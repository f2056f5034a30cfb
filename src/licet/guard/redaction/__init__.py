"""Takes a call's secrets out of whatever leaves it."""
