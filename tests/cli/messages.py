"""The messages that these tests expect."""

from messages import messages

message = messages("cli")
