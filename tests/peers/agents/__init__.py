"""The coding agents that people run, with a model that the tests play."""
