"""Workers: processes behind walls in which Python tools run."""
