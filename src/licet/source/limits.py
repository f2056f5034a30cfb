"""What reading Python source is bounded by: a file under review may be hostile."""

# One file
LARGEST_SOURCE = 512 << 10  # bytes; one file, over ten thousand lines, whose tree takes up to a thousand times its size
MOST_TOKENS = 100_000  # tokens; one file: about 9,000 lines of ordinary code, and 90 MB of memory to parse
MOST_DOTS = 100  # dots; one dotted name: to parse an import, Python keeps every prefix of it in memory
MOST_FSTRING_PARTS = 10_000  # parts; one f-string, for which some interpreters take quadratic time
LARGEST_SEARCHED = 1 << 20  # bytes; one file that is searched for the words of a tool; a longer one is parsed at once
LONGEST_EXCERPT = 500  # characters; code in a message, before it is cut to what the message shows

# All files of one command
MOST_TOKENS_OF_PROJECT = 500_000  # tokens; all files that one run of `licet lint` parses: 450 MB, some 45,000 lines
MOST_BYTES_IN_REVIEW = 4 << 20  # bytes; all source files that the tools of a policy are read from
MOST_TOKENS_IN_REVIEW = 300_000  # tokens; the same files, at about 15 microseconds for each
MOST_WASM_BYTES_IN_REVIEW = 256 << 20  # bytes; all WebAssembly modules that the tools of a policy name

# Imports that are followed
MOST_MODULES = 2000  # modules; those that the code of one tool, or one policy, imports
LONGEST_MODULE_NAME = 512  # characters; one module: the names of all its parent packages are kept too
MOST_PROJECT_BYTES = 8 << 20  # bytes; all project files whose imports are followed; later ones are not
MOST_IMPORTED_NAMES = 100_000  # names; all that these files import
MOST_TOP_NAMES = 2000  # names; top-level modules of no library, each of which is closed in every searched directory
LARGEST_HOOK = 1 << 20  # bytes; one file that sets up an import hook, or `.pth` file

# Declarations
LONGEST_REFERENCE = 512  # characters; one `package.module:function`
MOST_HOPS = 8  # files; imports from a reference to the function that it names
MOST_COMPARED = 100  # functions; those that a misspelt name is compared with
MOST_PROBLEMS = 1000  # problems; those of one file, after which it is not read further
MOST_ARGUMENTS = 50  # arguments; one declaration
LONGEST_SIGNATURE = 2000  # characters; the arguments of one function as text
LONGEST_SHOWN = 300  # characters; a value in a message
MOST_VALUES = 10_000  # values; one argument: names that contain names could otherwise grow without bound
MOST_VALUES_IN_FILE = 100_000  # values; all arguments in a file, since thousands of tools may use one long constant
CHARACTERS_PER_VALUE = 64  # characters; text that counts as one value
LONGEST_NUMBER = 1024  # bits; one number: longer ones are slow to print, and no real amount is that long
LONGEST_CHAIN = 8  # attributes; one name of licet, such as `licet.Tool.wasm`

# What names and lines mean
MOST_STEPS_TO_MEANING = 16  # steps; from an expression to what it means
MOST_BINDINGS = 8  # bindings; those of one name that are looked at, besides imports
MOST_TABLE_PARTS = 2000  # parts; one table of functions
MOST_STEPS_TO_TEXT = 8  # steps; from an expression to a literal, over names and operators
LONGEST_TEXT = 1000  # characters; one text that an expression gives
LONGEST_ANNOTATION = 1000  # characters; one annotation in quotes
MOST_REACHED_FUNCTIONS = 5000  # functions; those that one tool reaches
