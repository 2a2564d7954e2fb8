"""The curve from p50 to p99.9 of every contender in one run, as SVG: light, on a logarithmic scale, labelled at its lines."""

import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 64, 150, 62, 46
SHARES = (0.5, 0.9, 0.99, 0.999)
COLOURS = {"parm": "#c2410c", "nginx": "#15803d", "haproxy": "#0e7490", "envoy": "#6d28d9", "envoy-hedging": "#a21caf",
           "smg": "#475569"}
INK, GRID, PAPER = "#1f2937", "#e5e7eb", "#ffffff"


def quantile(ordered, share):
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def text(x, y, words, anchor="start", size=12, colour=INK, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}" '
            f'font-weight="{weight}">{escape(words)}</text>')


def spread(wanted, gap):
    """Moves labels apart, as little as possible from the top down, so that none covers another."""
    placed = {}
    last = -math.inf
    for name, y in sorted(wanted.items(), key=lambda item: item[1]):
        last = max(y, last + gap)
        placed[name] = last
    over = max(0.0, last - (HEIGHT - BOTTOM))
    return {name: y - over for name, y in placed.items()}


def picture(title, subtitle, times):
    """Returns the SVG of these sorted times in milliseconds, by contender."""
    steps = [1 - 10 ** -(math.log10(2) + (3 - math.log10(2)) * step / 80) for step in range(81)]
    curves = {name: [(share, quantile(ordered, share)) for share in steps] for name, ordered in times.items()}
    least = min(value for curve in curves.values() for _, value in curve)
    most = max(value for curve in curves.values() for _, value in curve)
    low, high = math.log10(least / 1.3), math.log10(max(most, 10 * least) * 1.2)

    def x(share):
        return LEFT + (WIDTH - LEFT - RIGHT) * (-math.log10(1 - share) - math.log10(2)) / (3 - math.log10(2))

    def y(value):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (math.log10(value) - low) / (high - low)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
             f'role="img" font-family="system-ui, sans-serif"><title>{escape(title)}</title>',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>', text(LEFT, 24, title, size=16, weight="bold"),
             text(LEFT, 43, subtitle)]
    for power in range(-1, 6):
        for digit in (1, 2, 5):
            value = digit * 10 ** power
            if low <= math.log10(value) <= high:
                label = f"{value:g} ms" if value < 1000 else f"{value / 1000:g} s"
                parts.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
                parts.append(text(LEFT - 8, y(value) + 4, label, "end"))
    for share in SHARES:
        parts.append(f'<path d="M{x(share):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="{GRID}"/>')
        parts.append(text(x(share), HEIGHT - BOTTOM + 20, f"p{100 * share:g}", "middle"))
    labels = spread({name: y(curve[-1][1]) for name, curve in curves.items()}, 16)
    for name, curve in curves.items():
        colour, width = COLOURS.get(name, INK), 3 if name == "parm" else 1.8
        points = " ".join(f"{x(share):.1f},{y(value):.1f}" for share, value in curve)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}" '
                     'stroke-linejoin="round"/>')
        end = curve[-1][1]
        known = f"{end:.0f} ms" if end < 1000 else f"{end / 1000:.1f} s"
        parts.append(text(WIDTH - RIGHT + 8, labels[name] + 4, f"{name} {known}", colour=colour,
                          weight="bold" if name == "parm" else "normal"))
    return "\n".join([*parts, "</svg>"]) + "\n"
