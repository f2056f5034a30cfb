"""The limits of the configurations of MCP clients that are read and edited."""

CONFIG_BYTES = 32 << 20  # bytes; a larger configuration is not read, nor is a larger file of secrets
CONFIG_DEPTH = 100  # levels; deeper JSON is not edited
TOML_CHARACTERS = 256 << 10  # characters; TOML that is edited: what `tomlkit` needs grows faster than the file
