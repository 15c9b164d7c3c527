"""A site of a federation: its data, memory and own model never leave its disk."""
