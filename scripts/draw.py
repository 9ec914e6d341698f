"""Draws a terminal and a dashboard as SVG, for scripts/pictures."""

import math
import re
import sys
from html import escape

# The escape sequences of `dlock top`: bold, underlined, reverse, yellow and red.
STYLES = {"1": "b", "4": "u", "7": "r", "38;5;11": "y", "93": "y", "38;5;9": "a", "91": "a"}
# Codes that end some: all, the color, and that of the background, which has none.
ENDS = {"0": set("burya"), "39": set("ya"), "49": set()}
COLORS = ["#0969da", "#9a6700", "#8250df", "#1a7f37", "#cf222e", "#bf3989", "#0e7490", "#6e7781"]
DARK = ["#4493f8", "#d29922", "#ab7df8", "#3fb950", "#f85149", "#db61a2", "#39c5cf", "#9198a1"]


def opening(width, height, title):
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<title>{escape(title)}</title>'


def terminal(screen, title):
    """Draws a screen that tmux captured with its escape sequences."""
    width, height, lines = 7.8, 18, screen.rstrip("\n").split("\n")
    shapes, style = [], set()
    for row, line in enumerate(lines):
        column, y = 0, 24 + row * height
        for part in re.split(r"(\x1b\[[0-9;]*m)", line):
            if sequence := re.fullmatch(r"\x1b\[([0-9;]*)m", part):
                # The number of a color belongs to the two before it.
                for code in re.findall(r"38;5;\d+|\d+", sequence[1] or "0"):
                    if code not in STYLES and code not in ENDS:
                        sys.exit(f"pictures: unknown escape sequence {code}")
                    style = style - ENDS[code] if code in ENDS else style | {STYLES[code]}
                continue
            if "r" in style and part:
                x, length = 12 + column * width, len(part) * width
                shapes.append(f'<rect class="r" x="{x:.1f}" y="{y - 13}" width="{length:.1f}" height="{height}"/>')
            for words in re.finditer(r"\S+(?: \S+)*", part):
                x, length = 12 + (column + words.start()) * width, len(words[0]) * width
                look = f' class="{" ".join(sorted(style))}"' if style else ""
                shapes.append(f'<text{look} x="{x:.1f}" y="{y}" textLength="{length:.1f}">{escape(words[0])}</text>')
            column += len(part)
    across, down = round(120 * width) + 24, len(lines) * height + 18
    return f"""{opening(across, down, title)}
<style>
text {{ font: 13px ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #d1d7e0 }}
rect {{ fill: #0d1117 }} rect.r {{ fill: #d1d7e0 }} text.r {{ fill: #0d1117 }} text.b {{ font-weight: 700 }}
text.u {{ text-decoration: underline }} text.y {{ fill: #d29922 }} text.a {{ fill: #f85149 }}
</style>
<rect width="{across}" height="{down}" rx="8"/>
{chr(10).join(shapes)}
</svg>
"""


def grid(title, panels, seconds, step):
    """Draws panels, each a description and a list of (label, [(second, value)]), in the layout of the dashboard."""
    unit, row, head = 40, 27, 44
    down = head + row * max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel, _ in panels)
    strokes = lambda colors: " ".join(f".s{number} {{ stroke: {color} }}" for number, color in enumerate(colors))
    shapes = []
    for panel, series in panels:
        place = panel["gridPos"]
        x, y = place["x"] * unit, head + place["y"] * row
        shapes.append(f'<g transform="translate({x} {y})">')
        shapes += draw(panel, series, place["w"] * unit - 8, place["h"] * row - 8, seconds, step)
        shapes.append("</g>")
    return f"""{opening(24 * unit, down, f"The dashboard {title}, drawn by scripts/pictures from its queries")}
<style>
text {{ font: 12px -apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif; fill: #59636e }}
text.head {{ font-size: 14px; font-weight: 600; fill: #1f2328 }}
tspan {{ font-size: 12px; font-weight: 400; fill: #59636e }}
rect {{ fill: #fff; stroke: #d1d9e0 }} .grid {{ stroke: #d1d9e0 }}
path {{ fill: none; stroke-width: 1.6; stroke-linejoin: round; stroke-linecap: round }} .dot {{ stroke-width: 3.5 }}
{strokes(COLORS)}
@media (prefers-color-scheme: dark) {{
text, tspan {{ fill: #9198a1 }} text.head {{ fill: #f0f6fc }}
rect {{ fill: #151b23; stroke: #3d444d }} .grid {{ stroke: #3d444d }}
{strokes(DARK)}
}}
</style>
<text class="head" x="8" y="20">{escape(title)}</text>
<text x="8" y="37">drawn by scripts/pictures from the queries of dashboard.json; not a screenshot of Grafana</text>
{chr(10).join(shapes)}
</svg>
"""


def draw(panel, series, width, height, seconds, step):
    """Draws one panel: title, axes, a line for each series, and its legend."""
    yield f'<rect x="4" y="4" width="{width}" height="{height}" rx="4"/>'
    remark = f'<tspan dx="6">{escape(panel["description"])}</tspan>'
    yield f'<text class="head" x="14" y="24">{escape(panel["title"])}{remark if panel["description"] else ""}</text>'

    legend, x, row = [], 14, 0
    for number, (label, _) in enumerate(series):
        length = 30 + 6.1 * len(label)
        if x + length > width and x > 14:
            x, row = 14, row + 1
        legend.append((number, label, x, row))
        x += length
    bottom = height - 36 - 17 * row
    for number, label, x, line in legend:
        y = bottom + 38 + 17 * line - 4
        yield f'<path class="s{number % len(COLORS)}" d="M{x} {y - 4}h12"/>'
        yield f'<text x="{x + 17}" y="{y}">{escape(label)}</text>'

    left, right, top_edge = 62, width - 16, 40
    most = max(value for _, points in series for _, value in points)
    spacing, shown = axis(most, panel["fieldConfig"]["defaults"]["unit"])
    ceiling = spacing * max(1, math.ceil(most / spacing - 1e-9))
    down = lambda value: bottom - (bottom - top_edge) * value / ceiling
    across = lambda at: left + (right - left) * at / seconds
    for tick in range(round(ceiling / spacing) + 1):
        y = down(tick * spacing)
        yield f'<path class="grid" d="M{left} {y:.1f}H{right}"/>'
        yield f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{shown(tick * spacing)}</text>'
    for at in range(0, seconds + 1, 20 if seconds < 200 else 60):
        yield f'<text x="{across(at):.1f}" y="{bottom + 16}" text-anchor="middle">{at // 60}:{at % 60:02}</text>'
    for number, (_, points) in enumerate(series):
        drawn, dots, at = [], [], -math.inf
        for index, (now, value) in enumerate(points):
            follows, at = now - at < 1.5 * step, now
            leads = index + 1 < len(points) and points[index + 1][0] - now < 1.5 * step
            place = f"{across(now):.1f} {down(value):.1f}"
            if follows or leads:
                drawn.append(("L" if follows else "M") + place)
            else:
                # The round ends make a line without length visible.
                dots.append(f"M{place}h0")
        look = f"s{number % len(COLORS)}"
        yield f'<path class="{look}" d="{"".join(drawn)}"/>'
        if dots:
            yield f'<path class="{look} dot" d="{"".join(dots)}"/>'


def axis(most, unit):
    """Returns the distance between two lines of the grid, and a function that writes a value with its unit."""
    scale, suffix = {
        "short": (1, ""),
        "ops": (1, "/s"),
        "percentunit": (100, "%"),
        "s": (1, " s") if most >= 1 else (1e3, " ms") if most >= 1e-3 else (1e6, " µs"),
    }[unit]
    raw = (most * scale or 1) / 4
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    if unit == "short":
        step = max(1, step)
    return step / scale, lambda value: f"{value * scale:.6g}{suffix}" if value else "0"
