"""The figures hold what the files say; how they look is for eyes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from headstart.records import StoredComparison, StoredRun, read_comparison, read_run
from headstart.report._charts import Panel, figures_of
from headstart.report._curves import method_learning, method_loss, run_learning
from headstart.report._matplotlib_backend import draw_figure, save_figures, spread_apart
from headstart.report._page_files import page_of
from headstart.report._palette import COLOURS, method_styles
from headstart.report._plotly_backend import plotly_panel
from headstart.report._side_by_side import combine_runs

Maker = Callable[..., Path]


def figures(stored: StoredRun | StoredComparison) -> Mapping[str, Sequence[Panel]]:
    return figures_of(page_of(stored).charts)


def many(count: int) -> list[tuple[float, float]]:
    return [(i / (2 * count), i / count) for i in range(1, count + 1)]


def test_a_run_has_its_figures(tmp_path: Path, make_run: Maker) -> None:
    run = read_run(make_run(tmp_path / "run", names=["$\\frac{1", "日本"]))
    paths = save_figures(figures(run), tmp_path / "figures")
    names = {path.name for path in paths}
    assert names == {
        f"{n}.{k}" for n in ("learning", "clients", "adaptation") for k in ("png", "svg")
    }
    assert all(path.stat().st_size > 5000 for path in paths)
    assert {path.name for path in (tmp_path / "figures").iterdir()} == names


def test_rows_for_few_clients_a_distribution_for_many(tmp_path: Path, make_run: Maker) -> None:
    small = read_run(make_run(tmp_path / "few", known=many(4), new=()))
    large = read_run(make_run(tmp_path / "many", known=many(1000)))
    few, lots = (draw_figure(figures(run)["clients"]) for run in (small, large))
    assert len(few.axes[0].get_yticks()) == 4
    assert [len(ax.patches) for ax in lots.axes] == [2, 0]
    assert lots.get_figheight() < 4


def test_a_comparison_has_its_figures(tmp_path: Path, make_comparison: Maker) -> None:
    folder = make_comparison(tmp_path / "cmp", label="a $ b $ c", diverged={"0": "why"})
    panels = figures(read_comparison(folder))
    assert set(panels) == {
        "learning-after", "learning-before", "learning-by-gradients", "training-loss",
        "adaptation", "clients", "differences",
    }  # fmt: skip
    save_figures({"differences": panels["differences"]}, tmp_path)
    drawn = draw_figure(panels["differences"]).axes[0].lines
    assert any(tuple(np.asarray(line.get_xdata())) == (0, 0) for line in drawn)


def test_adapting_on_the_scored_data_is_written_on_every_figure(
    tmp_path: Path, make_run: Maker, make_comparison: Maker
) -> None:
    run = read_run(make_run(tmp_path / "run", adapt_on="test"))
    whole = read_comparison(make_comparison(tmp_path / "cmp", adapt_on="test"))
    for stored in (run, whole):
        for name, panels in figures(stored).items():
            title = draw_figure(panels).get_suptitle().replace("\n", " ")
            assert ("adapt_on = test" in title) == (name != "training-loss")
        for chart in page_of(stored).charts:
            for panel in chart.views[0].panels[:1]:
                assert "adapted on" in plotly_panel(panel)["layout"]["annotations"][0]["text"]


def test_one_seed_has_no_band(tmp_path: Path, make_comparison: Maker) -> None:
    one = read_comparison(make_comparison(tmp_path / "one", (0.05, None), seeds=[0]))
    two = read_comparison(make_comparison(tmp_path / "two"))
    assert not any(line.has_band for line in method_learning(one, "known", "after", "round"))
    assert all(line.has_band for line in method_learning(two, "known", "after", "round"))


def test_bands_stay_between_0_and_100_percent(tmp_path: Path, make_run: Maker) -> None:
    run = read_run(make_run(tmp_path / "run", known=((0.0, 0.0), (0.9, 1.0))))
    after = run_learning(run, "round")[0]
    assert (after.low[0], after.high[0]) == (0.0, 100.0)


def test_lines_are_means_over_seeds(tmp_path: Path, make_run: Maker) -> None:
    paths = [
        make_run(tmp_path / "a", label="A", seed=0, known=((0.2, 0.6), (0.2, 0.6))),
        make_run(tmp_path / "b", label="A", seed=1, known=((0.4, 0.8), (0.4, 0.8))),
    ]
    together = combine_runs([read_run(path) for path in paths])
    (line,) = method_learning(together, "known", "after", "gradient_evaluations")
    assert line.x == (0, 600, 1200)
    assert line.y == pytest.approx((70, 70, 70))
    assert line.high == pytest.approx((100, 100, 100))  # 70 ± 12.7 · 0.1 √2 / √2 · 100, kept to 100
    (loss,) = method_loss(together, "round")
    assert loss.y == (None, pytest.approx(0.1), pytest.approx(0.05))


def test_a_method_keeps_its_colour_and_the_baseline_is_grey() -> None:
    labels = [f"m{i}" for i in range(9)]
    styles = method_styles(labels, baseline="m3")
    assert styles["m3"].colour not in COLOURS
    assert len({(style.colour, style.dash) for style in styles.values()}) == 9


def test_names_are_moved_apart() -> None:
    placed = spread_apart([96.0, 96.5, 97.0, 50.0], gap=5, most=101)
    assert placed == sorted(placed)
    assert all(b - a >= 5 for a, b in pairwise(placed))
    assert placed[0] == 50.0
    assert placed[-1] <= 101


def test_plotly_knows_every_property(
    tmp_path: Path, make_run: Maker, make_comparison: Maker
) -> None:
    from plotly.graph_objects import Figure

    run = read_run(make_run(tmp_path / "run", known=many(100), adapt_on="test"))
    comparison = read_comparison(make_comparison(tmp_path / "cmp"))
    charts = [*page_of(run).charts, *page_of(comparison).charts]
    panels = [panel for chart in charts for view in chart.views for panel in view.panels]
    assert all(Figure(plotly_panel(panel)).data for panel in panels)
