#!/bin/sh
# Trains across the sites; results in runs/ of the federation's folder.
# Needs: pip install "headstart[flower]". After a crash, add: --resume --out THE-RUN'S-FOLDER
cd "$(dirname "$0")/.." && exec headstart federate serve . "$@"
