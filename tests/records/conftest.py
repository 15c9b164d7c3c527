from stored_folders import make_comparison, make_run

__all__ = ["make_comparison", "make_run"]
