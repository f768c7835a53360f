#!/bin/sh
# Run by `firebase deploy` before it deploys the function; firebase.json names it. Makes functions/venv, in which the
# function is found, refuses to deploy a lock that is not what pyproject.toml asks for, and compiles what is uploaded.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd -P)
. "$root/scripts/ops/setup.sh"
cd "$root"
"$python" -P -m pytest -q -p no:cacheprovider functions/tests/docs/test_locks.py
# Known by what it was made from, not by when: an upload changes the times of files.
find functions/metacortex -type d -name __pycache__ -exec rm -rf {} +
exec "$python" -P -m compileall -q --invalidation-mode checked-hash functions/metacortex
