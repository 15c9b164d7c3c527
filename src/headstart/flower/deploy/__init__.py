"""Federation folders, certificates and keys, and the processes of server and sites.

_new_federation      ``headstart federate init``
_serving             ``headstart federate serve``
_joining             ``headstart federate join``
_local_trial         ``headstart federate up``: everything on one machine
_federation_folder   the files of a federation, and their templates
_certificates        certificates for the server, keys for the sites
_flower_processes    Flower's own processes and commands
_node_log            what the log of Flower's node says about its connection
"""

from headstart.flower.deploy._certificates import make_certificates, make_site_key
from headstart.flower.deploy._joining import join
from headstart.flower.deploy._local_trial import run_local_trial
from headstart.flower.deploy._new_federation import make_federation, make_federation_of_clients
from headstart.flower.deploy._serving import serve

__all__ = [
    "join",
    "make_certificates",
    "make_federation",
    "make_federation_of_clients",
    "make_site_key",
    "run_local_trial",
    "serve",
]
