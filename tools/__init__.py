"""Tools for working on Headstart; not part of the package."""
