"""What crosses between server and site: orders, answers, their encoding, error codes."""
