"""`hive schema`: what editors check plans and hive.toml against."""

from enum import StrEnum
from typing import Annotated

import typer

from hivekeeper.cli import render


class Kind(StrEnum):
    """A kind of file that a person writes."""

    PLAN = "plan"
    TOML = "toml"


def schema(kind: Annotated[Kind, typer.Argument(help="A plan, or hive.toml.")]) -> None:
    """Output the JSON Schema of plans or of hive.toml, with which editors complete and check."""
    from hivekeeper.config import schemas  # noqa: PLC0415 - only this command needs it

    render.print_json(schemas.make_plan_schema() if kind is Kind.PLAN else schemas.make_settings_schema())
