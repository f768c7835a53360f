#!/bin/sh
# Run by `firebase deploy` before it deploys the function; firebase.json names it. Makes functions/venv, in which the
# function is found, and refuses to deploy a lock that is not what pyproject.toml asks for.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd -P)
. "$root/scripts/ops/setup.sh"
cd "$root"
exec "$python" -P -m pytest -q -p no:cacheprovider functions/tests/docs/test_locks.py
