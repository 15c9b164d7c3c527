"""The server's side of a federated run.

server_app      Flower's ServerApp
coordinator     rounds, retries, waiting, evaluations, the last exchange
exchange        orders to all sites of a round, and their answers
site_links      Flower's grid: which sites are connected, messages and replies
answer_checks   checks of one answer, before anything of it is used
rejection       whatever one answer raises rejects that answer, and the round continues
session         the algorithm's state, the choice of sites, orders
roster          what the server knows of its sites
run_record      the run directory, checkpoints and events
"""

from headstart.flower.server._coordinator import conduct
from headstart.flower.server.server_app import app

__all__ = ["app", "conduct"]
