"""Fields of rows and events, picked for a view."""

from typing import Any


def pick(row: object, *names: str, **renamed: str) -> dict[str, Any]:
    """Pick fields by name; `renamed` maps the name in the view to the field's."""
    return {shown: getattr(row, name) for shown, name in (renamed | dict(zip(names, names, strict=True))).items()}
