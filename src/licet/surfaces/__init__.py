"""What people and other programs touch: each surface shows what the core decided, and decides nothing itself."""
