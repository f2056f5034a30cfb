"""A public suite of hijacked agents, replayed without a model through a gate."""
