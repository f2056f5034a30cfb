"""Ready-made tools that most agents need. Each takes its reach from the manifest alone, and can serve as an example.

They are written as your own would be: nothing is imported from licet but what everybody can import.
"""

from licet.tools.command import run_command
from licet.tools.files import edit_file, list_dir, read_file, write_file
from licet.tools.http import http_get, http_post
from licet.tools.search import search_files

__all__ = [
    "edit_file",
    "http_get",
    "http_post",
    "list_dir",
    "read_file",
    "run_command",
    "search_files",
    "write_file",
]
