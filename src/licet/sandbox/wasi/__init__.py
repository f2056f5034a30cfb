"""WebAssembly modules, and Python that a model wrote, behind the wall of a WebAssembly runtime."""
