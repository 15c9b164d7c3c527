"""Federation folders, certificates and keys, and the processes of server and sites."""
