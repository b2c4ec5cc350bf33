"""Pieces of HTML; what is given as text is escaped.

Forms switch off what browsers fill in by themselves, so that a page is the same each time.
"""

from collections.abc import Iterable, Sequence
from html import escape


def form(action: str, *parts: str, method: str = "post") -> str:
    inside = "".join(parts)
    return f'<form action="{action}" method="{method}" autocomplete="off">{inside}</form>'


def field(label: str, name: str, kind: str = "text", value: str = "") -> str:
    given = f'type="{kind}" name="{name}" value="{escape(value)}"'
    return f"<label>{escape(label)} <input {given}></label>"


def area(label: str, name: str) -> str:
    return f'<label>{escape(label)} <textarea name="{name}" rows="4"></textarea></label>'


def hidden(name: str, value: str) -> str:
    return f'<input type="hidden" name="{name}" value="{escape(value)}">'


def select(label: str, name: str, values: Iterable[str], chosen: str = "") -> str:
    options = "".join(
        f"<option{' selected' if value == chosen else ''}>{escape(value)}</option>"
        for value in values
    )
    return f'<label>{escape(label)} <select name="{name}">{options}</select></label>'


def radios(legend: str, name: str, values: Iterable[str]) -> str:
    """Choices of which one can be checked, none at first."""
    inside = "".join(
        f'<label><input type="radio" name="{name}" value="{escape(value)}"> {escape(value)}</label>'
        for value in values
    )
    return f"<fieldset><legend>{escape(legend)}</legend>{inside}</fieldset>"


def checkbox(label: str, name: str, *, checked: bool = False) -> str:
    """A box whose value is its label."""
    state = " checked" if checked else ""
    return (
        f'<label><input type="checkbox" name="{name}" value="{escape(label)}"{state}> '
        f"{escape(label)}</label>"
    )


def button(text: str, name: str = "", value: str = "") -> str:
    own = f' name="{name}" value="{escape(value)}"' if name else ""
    return f"<button{own}>{escape(text)}</button>"


def link(text: str, href: str) -> str:
    return f'<a href="{escape(href)}">{escape(text)}</a>'


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are HTML."""
    head = "".join(f"<th>{escape(header)}</th>" for header in headers)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def section(title: str, inside: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{inside}</details>"


def listed(items: Iterable[str]) -> str:
    """A list; items are HTML."""
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"
