"""Ready-made tools that most agents need. Each reaches only what the manifest allows. See docs/declare.md.

They are written as your own tools would be, with public names only, and can serve as examples.
"""

from licet.tools.command import run_command
from licet.tools.files import edit_file, list_dir, read_file, write_file
from licet.tools.http import http_get, http_post
from licet.tools.model_python import python
from licet.tools.search import search_files

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
