"""The coding agents whose hooks are known: one file each, with its tools, its events and its words."""
