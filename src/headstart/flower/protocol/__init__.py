"""What server and site exchange: orders, answers, their encoding, error codes.

_flower_records   bytes in Flower's records
_encoding         messages as bytes: one safetensors file each, bounds checked first
_messages         the typed records Order, Answer, …, and the version of the protocol
_error_codes      what leaves a site about a failure

Nothing is imported here: the process that Flower starts for a message needs only the first and
the last.
"""
