"""WASM tools: compiling modules, keeping what was compiled, and running guests in workers with host functions."""
