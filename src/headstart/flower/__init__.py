"""The distributed engine: the same algorithms between real machines, on Flower.

    order       what the server sends to a site in a round; wire.py says what crosses the line
    site        one party: its data, memory and own model never leave its disk
    worker      keeps a site's data and compiled programs ready between orders
    client_app  Flower's ClientApp: passes orders to the site, lets nothing but the answer out
    session     the server's side of the contract: state, who is chosen, evaluations
    answers     whatever one site's answer raises rejects that answer, and the round goes on
    strategy    Flower's Strategy: serialises, calls the contract, aggregates; no mathematics
    server_app  Flower's ServerApp: rounds, failures, checkpoints, the run directory
    local       a grid without a network, for tests and trials

Nothing is imported here: the process that Flower starts for a message must not wait for JAX.
"""
