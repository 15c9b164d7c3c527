"""Draw docs/images/layers.svg from the import contract: ``python docs/draw_layers.py``."""

from __future__ import annotations

import re
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "layers.svg"
PURPOSES = {
    "_cli": "one file per command",
    "_diagnosis": "how different the clients are, and which method helps",
    "flower": "the distributed engine: protocol, server, site, deploy (optional extra)",
    "_experiments": "configure, train, compare",
    "testing": "checks for extensions",
    "theory": "the papers' bounds",
    "report": "records to tables, charts and a page; never trains",
    "_simulation": "the in-process engine: rounds and evaluation in compiled programs",
    "records": "what a run, an evaluation and a comparison is; reads and writes the files",
    "heterogeneity": "distances between the clients' data",
    "aggregation": "clip, quantise, median …",
    "parts": "trained, adapted, kept parameters",
    "algorithms": "one file each",
    "data": "sources, partitions",
    "models": "networks, objectives",
    "meta": "the meta-gradient",
    "_first_layer": "a first layer without written-out gradients",
    "_keys": "all random keys",
    "trees": "arithmetic on parameter trees",
    "_extensions": "by name",
    "_metric": "direction, unit",
    "options": "checks",
    "_atomic_files": "write, rename",
    "machine": "devices",
    "errors": "the exception tree",
}
WIDTH, ROW, GAP, MARGIN = 900, 44, 8, 12


def read_layers() -> list[list[str]]:
    """Return the layers of the import contract, top to bottom."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(c for c in contracts["contracts"] if c["id"] == "layers")["layers"]
    return [re.findall(r"\w+", layer) for layer in layers]


def draw(layers: list[list[str]]) -> str:
    """Return the picture: one row per layer, one box per module."""
    height = 2 * MARGIN + len(layers) * (ROW + GAP) - GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif">',
        "<title>Layers of Headstart: imports point down</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for place, layer in enumerate(layers):
        width = (WIDTH - 2 * MARGIN - GAP * (len(layer) - 1)) / len(layer)
        y = MARGIN + place * (ROW + GAP)
        for column, name in enumerate(layer):
            x = MARGIN + column * (width + GAP)
            middle = x + width / 2
            lines += [
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW}" rx="6" '
                'fill="#eaf2fb" stroke="#5b84b1"/>',
                f'<text x="{middle:.1f}" y="{y + 18}" text-anchor="middle" font-size="14" '
                f'font-weight="600" fill="#16324f">{name}</text>',
                f'<text x="{middle:.1f}" y="{y + 35}" text-anchor="middle" font-size="12" '
                f'fill="#3d5166">{escape(PURPOSES[name])}</text>',
            ]
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(draw(read_layers()))
