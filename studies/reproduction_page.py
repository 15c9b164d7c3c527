"""Write the page that compares the papers' results with ours, from the stored results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from headstart._atomic_files import write_bytes, write_text
from headstart.report import Panel, draw_figure, render_figure
from studies.registry import STUDIES
from studies.seed_statistics import describe_seeds, markdown_table
from studies.small_versions import is_small
from studies.stored_results import Results
from studies.study import Claim, Record, Section

IMAGES = "images/reproduction"
COLUMN_WIDTH = 4.6
"""Of a figure, in inches."""

HEAD = """\
# Reproduction of the papers' results

Every experiment of the two papers, and some beyond them. One command runs each from raw data.

```sh
export HEADSTART_DATA=…                   # the folder with MNIST, CIFAR-10 and the others
headstart data list                       # what is available, and how to get the rest
headstart reproduce                       # the experiments and their progress
headstart reproduce {example}
```

You can stop a command at any time: the same command resumes where it stopped. The small files in
[results](../studies/results) hold every number with its configuration, seed, versions and machine.
`make reproduction-page` writes this page from them and trains nothing.
**P** is Per-FedAvg (Fallah, Mokhtari, Ozdaglar 2020), **G** the generalized framework
(Jamali, Saber, Bae).

## Verdicts

Computed from the stored results. A claim with several parts *holds* if the 95 % interval of every
part lies where the claim says. It *does not hold* if one interval lies entirely elsewhere.
Otherwise it is *undecided*.

{verdicts}
"""


SMALL = """\
⚠ **Made with `--quick`**: small networks and few rounds on the embedded digits. This shows that
the pipeline from data to page works. The numbers and verdicts say nothing about the papers."""


def build_page(results: Path, page: Path) -> list[Path]:
    """Write the page and its figures; all files that belong to it."""
    text, figures = contents(results)
    for name, content in figures.items():
        write_bytes(page.parent / IMAGES / name, content)
    write_text(page, text)
    return [page, *(page.parent / IMAGES / name for name in figures)]


def contents(results: Path) -> tuple[str, dict[str, bytes]]:
    """Return the page's text, and its figures by file name."""
    sections: dict[str, Section] = {}
    records: dict[str, Sequence[Record]] = {}
    for name, study in STUDIES.items():
        stored = Results.of_study(results, study)
        if stored.records:
            records[name], sections[name] = stored.records, study.section(stored.seen)
    figures = {
        f"{name}-{figure}.svg": draw_svg(panels)
        for name, section in sections.items()
        for figure, panels in section.figures.items()
    }
    verdicts = verdict_table(sections) if sections else "No results are stored yet."
    if any(is_small(record) for found in records.values() for record in found):
        verdicts = f"{SMALL}\n\n{verdicts}"
    parts = [HEAD.format(example=next(iter(STUDIES)), verdicts=verdicts)]
    for name, section in sections.items():
        parts.append(_section(name, section, records[name], results))
    return "\n".join(parts), figures


def draw_svg(panels: Sequence[Panel]) -> bytes:
    """Return a figure with at most two panels in a row."""
    columns = min(len(panels), 2)
    figure = draw_figure(panels, columns=columns, width=COLUMN_WIDTH * columns)
    return render_figure(figure, "svg")


def verdict_table(sections: Mapping[str, Section]) -> str:
    """Return all claims with their verdicts; the sections have the evidence."""
    rows = [
        [f"{claim.text} ([{name}](#{_anchor(STUDIES[name].title)}))", f"**{claim.verdict}**"]
        for name, section in sections.items()
        for claim in section.claims
    ]
    return markdown_table(["claim", "verdict"], rows).replace("---:", "---")


def _section(name: str, section: Section, records: Sequence[Record], results: Path) -> str:
    text = section.text
    for figure in section.figures:
        text = text.replace(f"({figure})", f"({IMAGES}/{name}-{figure}.svg)")
    notes = results / "notes" / f"{name}.md"
    parts = [
        f"## {STUDIES[name].title}",
        f"`headstart reproduce {name}`: {STUDIES[name].summary}.",
        text.strip(),
        *(_claim(claim) for claim in section.claims),
        *([notes.read_text(encoding="utf-8").strip()] if notes.exists() else []),
        _made(records),
    ]
    return "\n\n".join(parts) + "\n"


def _claim(claim: Claim) -> str:
    """Return the claim with its evidence."""
    lines = [f"- {line}" for line in claim.evidence]
    return "\n".join([f"**Claim**: {claim.text}. **{claim.verdict.capitalize()}**.", "", *lines])


def _made(records: Sequence[Record]) -> str:
    """Return where the numbers come from."""
    good = [record for record in records if "host" in record]
    hours = sum(record["seconds"] + record["evaluation_seconds"] for record in good) / 3600
    cores = sorted({record["host"]["cores"] for record in good})
    versions = sorted({f"jax {record['host']['versions']['jax']}" for record in good})
    return (
        f"<sub>{len(records)} runs, {describe_seeds(records)} each; {hours:.1f} hours of computing "
        f"on {' or '.join(map(str, cores))} cores; {', '.join(versions)}.</sub>"
    )


def _anchor(title: str) -> str:
    """Return the anchor of a heading on the page."""
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -")
    return kept.replace(" ", "-")
