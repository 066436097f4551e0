"""Tables for people, as text and as HTML, and the one frame of all HTML pages."""

import textwrap
from collections.abc import Iterable, Sequence
from html import escape

_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5em; color: #111; background: #fff }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .35em .7em; text-align: left; vertical-align: top;
         border-bottom: 1px solid #ddd; overflow-wrap: anywhere }
thead th { vertical-align: bottom; border-bottom: 2px solid #111 }
tbody th { font-weight: normal }
"""

_LEAST_WIDTH = 8


def html_page(title: str, body: str, style: str = "") -> str:
    """Write a page that needs nothing else.

    Parameters
    ----------
    title : str
        Text.
    body : str
        HTML.
    style : str
        CSS that this page adds to that of all pages.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{style}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def html_table(header: Sequence[str], rows: Iterable[str]) -> str:
    """Write a table.

    Parameters
    ----------
    header : sequence of str
        Text.
    rows : iterable of str
        Of `html_row`.
    """
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "\n".join(rows)
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"


def html_row(cells: Sequence[str], kind: str = "", first: str = "td") -> str:
    """Write a row of text cells, with a CSS class, and the element of its first cell."""
    elements = [first, *["td"] * (len(cells) - 1)]
    inside = "".join(f"<{e}>{escape(c)}</{e}>" for e, c in zip(elements, cells, strict=True))
    return f'<tr class="{kind}">{inside}</tr>' if kind else f"<tr>{inside}</tr>"


def text_table(rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Lay rows out as text; the first is the header.

    Parameters
    ----------
    rows : sequence of sequences of str
    width : int, optional
        Of the terminal, in characters: cells are wrapped into it. Without it every row is one
        line, which other programs can search.
    """
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if width:
        room = width - 2 * (len(sizes) - 1)
        while sum(sizes) > room and max(sizes) > _LEAST_WIDTH:
            sizes[sizes.index(max(sizes))] -= 1
    lines = []
    for row in rows:
        cells = [textwrap.wrap(cell, size) or [""] for cell, size in zip(row, sizes, strict=True)]
        for k in range(max(map(len, cells))):
            parts = [
                (cell[k] if k < len(cell) else "").ljust(size)
                for cell, size in zip(cells, sizes, strict=True)
            ]
            lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)
