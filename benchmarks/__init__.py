"""How fast Headstart's engine is, measured against others at the same work: see README.md."""
