"""All studies by name, in the order of the page."""

from __future__ import annotations

from studies.alternative_readings import AlternativeReadings
from studies.aruba import Aruba
from studies.diagnosis_check import DiagnosisCheck
from studies.equal_cost import EqualCost
from studies.first_version import FirstVersion
from studies.generalized import Generalized
from studies.natural_clients import NaturalClients
from studies.recommended import Recommended
from studies.study import Study
from studies.table1 import Table1
from studies.when_it_pays import WhenItPays

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        Table1(),
        EqualCost(),
        Aruba(),
        FirstVersion(),
        Generalized(),
        AlternativeReadings(),
        NaturalClients(),
        DiagnosisCheck(),
        WhenItPays(),
        Recommended(),
    )
}
