# ===- display.py - Objects as text, tables and drawings -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""How notebooks and terminals show choices, plans and runs: HTML with SVG inside, which
needs no network and no script."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .choices import Choice
    from .plans import Plan
    from .runs import Run

WIDTH, ROW = 640, 18
# Colours that are told apart on white and on black, in the order of their use.
COLORS = (
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#edc948", "#76b7b2",
    "#9c755f", "#ff9da7", "#bab0ac",
)  # fmt: skip
TABLE_ROWS = 5
# A longer curve is drawn by every n-th step.
POINTS = 1000


def seconds(value: float) -> str:
    """Text with a unit, as reports have it."""
    if value >= 1:
        return f"{value:.3f} s"
    return f"{value * 1e3:.2f} ms" if value >= 1e-3 else f"{value * 1e6:.1f} us"


def size(value: float) -> str:
    """Bytes with a unit."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= unit:
            return f"{value / unit:.1f} {name}"
    return f"{value:.0f} bytes"


def count(value: float) -> str:
    """A whole number with commas."""
    return f"{value:,.0f}"


def mesh_text(mesh: Mapping[str, int]) -> str:
    return ", ".join(f"{axis} {extent}" for axis, extent in mesh.items())


# ===-----------------------------------------------------------------------===#
# Text
# ===-----------------------------------------------------------------------===#


def strategy(configuration: Mapping[str, Any]) -> str:
    """A configuration in one line, without what is none."""
    parts = [configuration["schedule"]]
    if configuration["chunks"] > 1:
        parts.append(f"chunks {configuration['chunks']}")
    parts.append(f"micro-batch {configuration['micro_batch']}")
    for name in ("recompute", "zero", "offload"):
        value = configuration[name]
        if value not in ("none", 0):
            parts.append(f"{name} {value}")
    return ", ".join(parts)


def print_choice(choice: Choice) -> str:
    prediction = choice.prediction
    fullest = max(x["peak"] + x["reserved"] for x in choice.memory)
    lines = [
        ("plan", f"{mesh_text(choice.mesh)}, {strategy(prediction['configuration'])}"),
        ("cluster", prediction["configuration"]["cluster"]),
        (
            "step",
            f"{seconds(choice.seconds)}, {count(choice.tokens_per_second)} tokens/s, "
            f"MFU {100 * choice.mfu:.1f} %",
        ),
        ("memory", f"{size(fullest)} of {size(choice.memory_limit)} on the fullest"),
    ]
    parts = sorted(choice.time.items(), key=lambda part: -part[1])
    lines += [
        (name, f"{seconds(value):>12}  {100 * value / choice.seconds:5.1f} %")
        for name, value in parts
        if value >= choice.seconds / 1000
    ]
    return "\n".join(f"{name:<18}{text}" for name, text in lines)


# ===-----------------------------------------------------------------------===#
# Parts of pages
# ===-----------------------------------------------------------------------===#


def table(rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    top = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table>{f'<tr>{top}</tr>' if top else ''}{body}</table>"


def title(text: str) -> str:
    return f"<p><b>{html.escape(text)}</b></p>"


def _svg(height: float, parts: Iterable[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}" '
        f'viewBox="0 0 {WIDTH} {height:g}" font-family="sans-serif" font-size="11" '
        f'fill="currentColor">{"".join(parts)}</svg>'
    )


def _box(
    x: float, y: float, width: float, fill: str, tip: str, height: float = ROW
) -> str:
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0):.2f}" height="{height:g}" '
        f'fill="{fill}"><title>{html.escape(tip)}</title></rect>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}">{html.escape(text)}</text>'
    )


def _colors(names: Iterable[str]) -> dict[str, str]:
    return dict(zip(dict.fromkeys(names), itertools.cycle(COLORS)))


def _legend(colors: Mapping[str, str], y: float) -> tuple[list[str], float]:
    """Its parts, and the height below it."""
    parts, x = [], 0.0
    for name, color in colors.items():
        length = 22 + 6.5 * len(name)
        if x + length > WIDTH:
            x, y = 0.0, y + ROW
        parts += [_box(x, y + 4, 10, color, name, 10), _text(x + 14, y + 13, name)]
        x += length
    return parts, y + ROW


def bars(rows: Mapping[str, Mapping[str, float]], limit: float, unit: Any) -> str:
    """A bar of stacked parts for each row, on a scale of which `limit` is the end."""
    colors = _colors(name for row in rows.values() for name, x in row.items() if x > 0)
    left = 8 + 6.5 * max(len(name) for name in rows)
    scale = (WIDTH - left - 70) / max(limit, *(sum(x.values()) for x in rows.values()))
    parts, y = [], 2.0
    for name, row in rows.items():
        parts.append(_text(0, y + 13, name))
        x = left
        for part, value in row.items():
            if value > 0:
                tip = f"{part} {unit(value)}"
                parts.append(_box(x, y, value * scale, colors[part], tip))
                x += value * scale
        parts.append(_text(x + 4, y + 13, unit(sum(row.values()))))
        y += ROW + 4
    end = left + limit * scale
    parts.append(
        f'<line x1="{end:.2f}" x2="{end:.2f}" y1="0" y2="{y:g}" stroke="currentColor" '
        f'stroke-dasharray="3,3"><title>{html.escape(unit(limit))}</title></line>'
    )
    legend, height = _legend(colors, y)
    return _svg(height + 4, parts + legend)


def timeline(lines: Sequence[Sequence[tuple[str, float, float]]]) -> str:
    """What each rank of the pipeline does when."""
    end = max((x[2] for line in lines for x in line), default=0) or 1.0
    colors = _colors(x[0] for line in lines for x in line)
    left, parts, y = 50.0, [], 2.0
    scale = (WIDTH - left - 4) / end
    for number, line in enumerate(lines):
        parts.append(_text(0, y + 13, f"stage {number}"))
        for kind, begin, until in line:
            tip = f"{kind} {seconds(begin)} to {seconds(until)}"
            parts.append(
                _box(left + begin * scale, y, (until - begin) * scale, colors[kind], tip)
            )
        y += ROW + 2
    legend, height = _legend(colors, y)
    return _svg(height + 4, parts + legend)


def curve(points: Sequence[tuple[float, float]], label: str, height: int = 180) -> str:
    """A line through those that are numbers."""
    kept = [(x, y) for x, y in points if math.isfinite(y)]
    kept = kept[:: max(1, len(kept) // POINTS)] + kept[-1:]
    if not kept:
        return ""
    first, last = kept[0][0], kept[-1][0]
    low, high = min(y for _, y in kept), max(y for _, y in kept)
    left, bottom = 60.0, height - 20.0
    along = (WIDTH - left - 10) / max(last - first, 1e-30)
    up = (bottom - 10) / max(high - low, 1e-30)
    line = " ".join(
        f"{left + (x - first) * along:.2f},{bottom - (y - low) * up:.2f}" for x, y in kept
    )
    return _svg(
        height,
        [
            f'<polyline points="{line}" fill="none" stroke="{COLORS[0]}" '
            f'stroke-width="1.5"><title>{html.escape(label)}</title></polyline>',
            _text(left - 4, 14, f"{high:.4g}", "end"),
            _text(left - 4, bottom, f"{low:.4g}", "end"),
            _text(left, height - 4, f"{first:g}"),
            _text(WIDTH - 10, height - 4, f"step {last:g}", "end"),
        ],
    )


# ===-----------------------------------------------------------------------===#
# Pages
# ===-----------------------------------------------------------------------===#


_PARTS = (
    "parameters",
    "gradients",
    "optimizer",
    "activations",
    "workspace",
    "communicators",
    "reserved",
)


def _stages(memory: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """What of a device each stage takes; what is offloaded is none of it."""
    return {
        f"stage {number}": {part: stage[part] for part in _PARTS}
        for number, stage in enumerate(memory)
    }


def _costs(choice: Choice) -> str:
    """Time by cause and memory by rank."""
    memory = _stages(choice.memory)
    return (
        title("time by cause")
        + bars({"step": choice.time}, choice.seconds, seconds)
        + title("memory by rank")
        + bars(memory, choice.memory_limit, size)
    )


def draw_choice(choice: Choice) -> str:
    prediction = choice.prediction
    rows = [
        ("mesh", mesh_text(choice.mesh)),
        ("strategy", strategy(prediction["configuration"])),
        ("cluster", prediction["configuration"]["cluster"]),
        ("step", seconds(choice.seconds)),
        ("tokens/s", count(choice.tokens_per_second)),
        ("MFU", f"{100 * choice.mfu:.1f} %"),
    ]
    others = [
        (
            seconds(x["iteration_seconds"]),
            mesh_text({axis: x["configuration"][axis] for axis in choice.mesh}),
            strategy(x["configuration"]),
            x["why"],
        )
        for x in choice.alternatives[:TABLE_ROWS]
    ]
    shown = title("runners-up") + table(others) if others else ""
    return f"<div>{table(rows)}{_costs(choice)}{shown}</div>"


def draw_plan(plan: Plan) -> str:
    facts = plan.facts
    rows = [
        ("model", facts["model"]),
        ("mesh", f"{mesh_text(plan.mesh)}: {plan.ranks} ranks"),
        ("batch", f"{plan.global_batch} sequences of {plan.seq} tokens"),
        ("parameters", count(sum(math.prod(x) for x in plan.parameters.values()))),
        ("precision", facts["precision"]),
        ("runs on", facts["backend"]),
        ("optimizer", facts["optimizer"]),
    ]
    page = table(rows)
    if plan.choice:
        page += _costs(plan.choice)
    if plan.replay:
        if not plan.choice:
            programs = plan.replay.facts["programs"]
            page += title("memory by rank") + bars(
                {f"stage {i}": _fullest(x) for i, x in enumerate(programs)}, 0, size
            )
        page += title("a step") + timeline(plan.replay.lines)
    return f"<div>{page}</div>"


def _fullest(program: Mapping[str, Any]) -> dict[str, float]:
    """What a rank holds when it holds most."""
    return max((x["bytes"] for x in program["memory"]), key=lambda x: sum(x.values()))


def draw_run(run: Run) -> str:
    rows = [("step", f"{run.step} of {run.steps}")]
    if run.history:
        last = run.history[-1]
        rows += [
            ("loss", f"{last.loss:.6g}"),
            ("gradient norm", f"{last.gradient_norm:.4g}"),
            ("learning rate", f"{last.learning_rate:.4g}"),
            ("tokens/s", count(last.tokens_per_second)),
        ]
    page = table(rows)
    points = [(step.step, step.loss) for step in run.history]
    if points:
        page += title("loss") + curve(points, "loss")
    return f"<div>{page}</div>"
