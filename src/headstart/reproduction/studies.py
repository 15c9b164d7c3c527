"""All studies by name, in the order of the page."""

from __future__ import annotations

from headstart.reproduction.aruba import Aruba
from headstart.reproduction.arxiv1 import FirstVersion
from headstart.reproduction.cost import Cost
from headstart.reproduction.generalized import Generalized
from headstart.reproduction.left_open import LeftOpen
from headstart.reproduction.natural import NaturalClients
from headstart.reproduction.study import Study
from headstart.reproduction.table1 import Table1
from headstart.reproduction.would_it_pay import WouldItPay

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        Table1(),
        Cost(),
        Aruba(),
        FirstVersion(),
        Generalized(),
        LeftOpen(),
        NaturalClients(),
        WouldItPay(),
    )
}
