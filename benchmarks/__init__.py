"""The speed of Headstart's engine compared with other programs: see README.md."""
