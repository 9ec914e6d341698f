"""Draws a terminal as SVG."""

import re
import sys
from html import escape

# The escape sequences of `dlock top`: bold, underlined, reverse, yellow and red.
STYLES = {"1": "b", "4": "u", "7": "r", "38;5;11": "y", "93": "y", "38;5;9": "a", "91": "a"}
# Codes that end styles: all; the color of the text; and the color of the background, which is never set.
ENDS = {"0": set("burya"), "39": set("ya"), "49": set()}


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
                # A color is three numbers in one code: 38;5 and its own.
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
