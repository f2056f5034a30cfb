"""A module that a tool imports: writing it would change the tool."""

PLANTED = "planted = 1\n"
