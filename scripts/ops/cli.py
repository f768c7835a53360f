"""The operator's command line. A command is a function in a module of its own, registered here."""

import typer

from ops import archive, grant, mirror, owner, profile
from ops.bench import bench
from ops.eval import app as evaluation
from ops.indexes import indexes
from ops.look_inside import inspect
from ops.models import models
from ops.preflight import preflight
from ops.reembed import reembed
from ops.smoke import smoke
from ops.tail import tail
from ops.upgrade import upgrade

app = typer.Typer(
    name="metacortex",
    help="The operator's command line of MetaCortex.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(smoke)
app.command()(bench)
app.command()(indexes)
app.command()(models)
app.command()(preflight)
app.command()(reembed)
app.command()(inspect)
app.command()(tail)
app.command()(upgrade)
app.add_typer(profile.app, name="profile")
app.add_typer(owner.app, name="owner")
app.add_typer(grant.app, name="grant")
app.add_typer(archive.app, name="archive")
app.add_typer(mirror.app, name="mirror")
app.add_typer(evaluation, name="eval")


@app.callback()
def metacortex() -> None:
    """The operator's command line of MetaCortex."""
