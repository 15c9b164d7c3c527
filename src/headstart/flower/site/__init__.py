"""A site of a federation: its data, memory and own model never leave its disk.

client_app             Flower's ClientApp: passes bytes to the worker and back
_worker_socket         the connection between that process and the resident worker
_order_execution       what a site does with an order: train, score, keep a model
_site_data             the site's examples
_site_memory           what the algorithm keeps at the site between rounds
_site_personalization  the site's own model, made without the server

Nothing is imported here: the process that Flower starts for a message must not wait for JAX.
"""
