"""What bounds a map: a picture with more in it would not be read."""

# One picture
MOST_BUNDLES = 60  # bundles in a picture; the others are one box
MOST_TOOLS = 100  # tools in a picture; the others are one box
MOST_TARGETS = 200  # targets of one kind in a picture; the others are one box
MOST_DENIED = 60  # denied rules in a picture; the others are one box

# One text
MOST_TIPS = 40  # lines of one tooltip
MOST_NOTES = 3  # exceptions on one card
MOST_TOLD = 12  # exceptions of one entry in a tooltip
MOST_UNUSED = 10  # rules that a note about unused ones lists
