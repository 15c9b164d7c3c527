"""Programs that train by the same algorithm, each run in a process of its own by ``serve``."""
