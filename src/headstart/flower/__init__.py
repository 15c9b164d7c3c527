"""The distributed engine: the same algorithms between real machines, on Flower.

    protocol    what server and site exchange: orders, answers, encoding, error codes
    server      rounds, checks of answers, the run directory
    site        carries out orders; its data, memory and own model never leave its disk
    deploy      federation folders, certificates and keys, processes, a trial on one machine

Nothing is imported here: the process that Flower starts for a message must not wait for JAX.
"""
