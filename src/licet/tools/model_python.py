"""A tool that runs Python which a model wrote. It computes, uses files and fetches, as far as the manifest allows.

The code runs in an interpreter of its own, CPython compiled to WebAssembly, which has no files, network or processes
besides the handles. The manifest states the class: `python: {side_effect_class: read_only}` lets it change nothing.
"""

from licet import Tool

python = Tool.wasm(
    "licet:python",
    name="python",
    # Secrets and programs are left out: declare a tool of your own with `Tool.wasm("licet:python", …)` to have them.
    capabilities={
        "network": {"allowed_hosts": ["*"]},
        "fs_reach": {"read": "from-personality", "write": "from-personality"},
        "env": ["*"],
    },
    optional=["storage:*:tool-private"],
    sandbox="restricted",
)
