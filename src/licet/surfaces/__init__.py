"""Commands, maps and the pytest plugin. Surfaces show what the core decided, and decide nothing themselves."""
