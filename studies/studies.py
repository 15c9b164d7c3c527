"""All studies by name, in the order of the page."""

from __future__ import annotations

from studies.aruba import Aruba
from studies.arxiv1 import FirstVersion
from studies.cost import Cost
from studies.generalized import Generalized
from studies.left_open import LeftOpen
from studies.natural import NaturalClients
from studies.study import Study
from studies.table1 import Table1
from studies.would_it_pay import WouldItPay

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
