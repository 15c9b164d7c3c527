"""What Flower starts at the server for a run."""

from headstart.flower.server_app import app

__all__ = ["app"]
