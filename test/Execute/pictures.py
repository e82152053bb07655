#===- pictures.py - Curves as pictures --------------------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What suites draw into docs/images."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Line:
    values: list[float]  # of each step
    color: str
    dashed: bool = False


def draw(
    lines: dict[str, Line], marks, every: int, axis: int, unit: int = 1, numbers=None
) -> str:
    """Values by step on a logarithmic scale with `marks`, a point each `every` of them;
    the axis of steps has a number each `axis` values, which are `unit` steps apart. With
    `numbers` values are of those, and not of steps."""
    width, height, left, top = 460, 300, 48, 12
    steps = max(len(line.values) for line in lines.values())
    least = math.log(min(min(line.values) for line in lines.values()))
    most = math.log(max(max(line.values) for line in lines.values()))

    def place(step: int, value: float) -> str:
        x = left + width * step / (steps - 1)
        y = top + height * (most - math.log(value)) / (most - least)
        return f"{x:.1f},{y:.1f}"

    text = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 240} '
        f'{top + height + 40}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" '
        'stroke="#999999"/>',
    ]
    for mark in marks:
        if least <= math.log(mark) <= most:
            y = float(place(0, mark).split(",")[1])
            text.append(f'<text x="8" y="{y + 4:.1f}">{mark:g}</text>')
            text.append(f'<path d="M{left},{y:.1f}h4" stroke="#999999"/>')
    for step in range(0, steps, axis):
        x = float(place(step, 1).split(",")[0])
        number = numbers[step] if numbers else step * unit
        text.append(f'<text x="{x:.1f}" y="{top + height + 18}">{number}</text>')
    if not numbers:
        text.append(f'<text x="{left + width - 30}" y="{top + height + 18}">step</text>')
    for index, (name, line) in enumerate(lines.items()):
        style = f'stroke="{line.color}" fill="none" stroke-width="1.5"'
        style += ' stroke-dasharray="5 4"' if line.dashed else ""
        points = " ".join(
            place(step, line.values[step]) for step in range(0, len(line.values), every)
        )
        text.append(f'<polyline points="{points}" {style}/>')
        x, y = left + width + 10, top + 12 + 18 * index
        text.append(f'<path d="M{x},{y}h20" {style}/>')
        text.append(f'<text x="{x + 26}" y="{y + 4}">{name}</text>')
    return "\n".join(text) + "\n</svg>\n"
