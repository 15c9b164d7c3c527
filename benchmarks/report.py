"""The results as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.cases import CASES, asked_percent, asked_ratio

README = Path(__file__).with_name("README.md")
PROFILE = Path(__file__).with_name("profile.md")
HEADER = (
    "case", "method", "contestant", "best ms", "median ms", "GFLOP/s", "% of peak",
    "× best", "× median", "asked", "met",
)  # fmt: skip
LEFT = 3
"""Columns of words."""


def summary(result: dict[str, Any]) -> str:
    """Return one line to show during the run."""
    times = (f"{name} {c['best_ms']:.2f} ms" for name, c in result["contestants"].items())
    return "  " + ", ".join(times)


def judge(result: dict[str, Any]) -> None:
    """Add what follows from the times. GFLOP/s and percent are those of the best turn."""
    case, method = CASES[result["case"]], result["method"]
    flops = result["gradients_per_round"] * result["flops_per_gradient"]
    peak = max(result["peak_gflops"].values(), default=None)
    ours = result["contestants"].get("headstart")
    for name, found in result["contestants"].items():
        gflops = 1e-6 * flops / found["best_ms"]
        percent = 100 * gflops / peak if peak else None
        ratios = [found[time] / ours[time] if ours else None for time in ("best_ms", "median_ms")]
        if name == "headstart":
            wish, unit, reached = asked_percent(case, method), "%", [percent]
        else:
            wish, unit, reached = asked_ratio(case, method, name), "×", ratios
        found |= {"gflops": gflops, "percent_of_peak": percent}
        found |= {"ratio_best": ratios[0], "ratio_median": ratios[1]}
        found["asked"] = f"≥ {wish:g} {unit}" if wish else None
        found["met"] = all((r or 0) >= wish for r in reached) if wish else None


def rows(result: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the lines of one case and method."""
    what = (result["case"], result["method"])
    lines: list[tuple[str, ...]] = [
        (
            *what,
            f"{name} ({found['setting']})",
            f"{found['best_ms']:.2f}",
            f"{found['median_ms']:.2f}",
            f"{found['gflops']:.1f}",
            _number(found["percent_of_peak"], ".0f"),
            _number(found["ratio_best"], ".2f"),
            _number(found["ratio_median"], ".2f"),
            found["asked"] or "",
            {True: "yes", False: "no", None: ""}[found["met"]],
        )
        for name, found in result["contestants"].items()
    ]
    speeds = result["peak_gflops"]
    if speeds:
        best = max(speeds, key=lambda library: speeds[library])
        lines.append((*what, f"peak ({best})", "", "", f"{speeds[best]:.1f}", *[""] * 5))
    return lines


def table(results: list[dict[str, Any]]) -> str:
    """Return all lines, aligned, as Markdown."""
    lines = [HEADER, *(row for result in results for row in rows(result))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = [("-" * w if i < LEFT else "-" * (w - 1) + ":") for i, w in enumerate(widths)]
    texts = [
        [t.ljust(widths[i]) if i < LEFT else t.rjust(widths[i]) for i, t in enumerate(line)]
        for line in lines
    ]
    texts.insert(1, rule)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in texts)


def write_readme(content: dict[str, Any]) -> None:
    """Put the table between its marks."""
    machine = content["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    dates = sorted({result["date"] for result in content["results"]})
    facts = (
        f"{machine['processor']}, {machine['cores']} cores; Python {machine['python']}, "
        f"{versions}; {' to '.join(sorted({dates[0], dates[-1]}))}."
    )
    write_section("speed", f"{facts}\n\n{table(content['results'])}")


def write_section(name: str, text: str) -> None:
    """Put a result between its marks on the page that has them."""
    page = PROFILE if name == "profile" else README
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, rest = page.read_text().split(begin)
    page.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}")


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
