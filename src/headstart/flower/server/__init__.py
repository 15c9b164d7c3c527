"""The server's side of a federated run: rounds, checks of answers, the run directory."""
