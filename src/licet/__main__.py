"""`python -m licet`: the command line, where the script `licet` is not on the PATH."""

from licet.cli import program

if __name__ == "__main__":
    program()
