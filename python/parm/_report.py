"""Reports of `parm` as dictionaries, which a notebook shows as a chart."""

from __future__ import annotations

import html
from typing import Any


class Report(dict):  # type: ignore[type-arg]
    """The JSON of a command. In a notebook its last expression is drawn: `_repr_html_` makes the chart."""

    def __init__(self, content: dict[str, Any], title: str, bars: list[tuple[str, Any]], unit: str = "ms") -> None:
        super().__init__(content)
        self._title, self._bars, self._unit = title, bars, unit

    def _repr_html_(self) -> str:
        return f"<figure><figcaption>{html.escape(self._title)}</figcaption>{self.svg()}</figure>"

    def svg(self) -> str:
        """A bar for each figure. A latency with too few samples has none."""
        longest = max((value for _, value in self._bars if value), default=1.0)
        rows = []
        for at, (label, value) in enumerate(self._bars):
            y = 22 * at
            rows.append(f'<text x="195" y="{y + 15}" text-anchor="end">{html.escape(label)}</text>')
            width = 320 * (value or 0) / longest
            rows.append(f'<rect x="200" y="{y + 3}" width="{width:.1f}" height="16" fill="#4477aa"/>')
            told = "too few samples" if value is None else f"{value:.1f} {self._unit}"
            rows.append(f'<text x="{205 + width:.1f}" y="{y + 15}">{told}</text>')
        head = f'width="640" height="{22 * len(rows) // 3 + 4}" font-family="sans-serif" font-size="12" fill="currentColor"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {head}>{"".join(rows)}</svg>'
