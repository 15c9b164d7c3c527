"""The federation's Flower app: all it does is name Headstart's."""
