"""The server's side of a federated run.

server_app      Flower's ServerApp
_coordinator    rounds, retries, waiting, evaluations, the last exchange
_exchange       orders to all sites of a round, and their answers
_site_links     Flower's grid: which sites are connected, messages and replies
_answer_checks  checks of one answer, before it is used
_rejection      any exception from one answer rejects only that answer
_session        the algorithm's state, the choice of sites, orders
_roster         what the server knows about its sites
_run_record     the run directory, checkpoints and events
"""

from headstart.flower.server._coordinator import conduct
from headstart.flower.server.server_app import app

__all__ = ["app", "conduct"]
