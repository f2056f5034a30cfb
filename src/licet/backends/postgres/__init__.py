"""The stores of many nodes, in one PostgreSQL database."""
