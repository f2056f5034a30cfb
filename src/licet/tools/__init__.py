"""Ready-made tools that most agents need. Each reaches only what the manifest allows. See docs/declare.md.

They are written as your own tools would be, with public names only, and can serve as examples.
"""

from licet.tools.basic import edit_file, http_get, http_post, list_dir, python, read_file, run_command, write_file
from licet.tools.file_search import search_files

__all__ = [
    "edit_file",
    "http_get",
    "http_post",
    "list_dir",
    "python",
    "read_file",
    "run_command",
    "search_files",
    "write_file",
]
