#!/bin/sh
# Joins the federation as {{ name }} and stays until it is stopped (Ctrl-C).
# Needs: pip install "headstart[flower]"
cd "$(dirname "$0")" && exec headstart federate join site.toml
