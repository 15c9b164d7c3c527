"""Programs that train by the same algorithm, each run in a separate process by ``serve``."""
