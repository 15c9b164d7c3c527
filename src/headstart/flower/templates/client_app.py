"""What Flower starts at a site for every message."""

from headstart.flower.client_app import app

__all__ = ["app"]
