"""Where do values come from? Normal form, matching, labels, and what a session has read. Pure: no files, no clock."""
