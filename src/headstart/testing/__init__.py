"""Checks that algorithms and models, built in or your own, keep their contract.

    from headstart.testing import check_algorithm
    check_algorithm(FedProx)

raises one :class:`ContractError` that lists every problem and its remedy.
:func:`algorithm_problems` and :func:`model_problems` return the list instead.
"""

from headstart.testing._algorithm_checks import algorithm_problems, check_algorithm
from headstart.testing._model_checks import check_model, model_problems
from headstart.testing._problems import ContractError, Problem

__all__ = [
    "ContractError",
    "Problem",
    "algorithm_problems",
    "check_algorithm",
    "check_model",
    "model_problems",
]
