"""`python -m ops`, which is what ./scripts/metacortex runs."""

from ops.cli import app

app(prog_name="metacortex")
