"""What runs inside the WebAssembly instance, in CPython 3.14 with nothing of licet around it.

Nothing here is a boundary: code in the instance may read and change all of it. The host trusts only what it checks.
"""
