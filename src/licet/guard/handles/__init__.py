"""The handles of a call: each checks every use against the grant."""
