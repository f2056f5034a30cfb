"""`licet lint`: finds what the source of a tool and its helpers touches, and compares it with the declaration."""
