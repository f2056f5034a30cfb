"""Hooks of coding agents: decides the calls that an agent makes with its own tools, and puts its shell behind walls."""
