"""``python -m headstart``: the command line without the installed script."""

from headstart._cli.main import main

main()
