"""Docstring examples of an optional part are collected only where its library is installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("flwr") else ["src/headstart/flower"]
