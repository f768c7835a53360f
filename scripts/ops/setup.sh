# Sourced by the front doors in scripts/, with $root naming the checkout. Sees to it that functions/venv holds exactly
# what the lock names, and leaves behind $python, its interpreter. Silent where there is nothing to do.

python=$root/functions/venv/bin/python

# A shim or a link may exist and not run, so every candidate is run.
supported() {
    "$1" -I -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1
}

# Debian ships Python without the modules that make a virtual environment.
makes_environments() {
    "$1" -I -c 'import ensurepip, venv' >/dev/null 2>&1
}

say() {
    printf '%s\n' "$*" >&2
}

# 3.11 first: it is the runtime that firebase.json names.
python_candidates() {
    printf '%s\n' "${PYTHON:-}"
    for version in 3.11 3.12 3.13; do
        for candidate in \
            "python$version" \
            "${HOME:-}"/.pyenv/versions/"$version".*/bin/python \
            "${HOME:-}"/.local/share/uv/python/cpython-"$version".*/bin/"python$version" \
            "${HOME:-}/.local/bin/python$version" \
            "/opt/homebrew/bin/python$version" \
            "/usr/local/bin/python$version" \
            "/usr/bin/python$version" \
            "/Library/Frameworks/Python.framework/Versions/$version/bin/python$version"; do
            printf '%s\n' "$candidate"
        done
    done
    printf '%s\n' python3
}

find_python() {
    incomplete=
    while IFS= read -r candidate; do
        supported "$candidate" || continue
        if makes_environments "$candidate"; then
            printf '%s\n' "$candidate"
            return 0
        fi
        incomplete=${incomplete:-$candidate}
    done <<CANDIDATES
$(python_candidates)
CANDIDATES
    if [ -n "$incomplete" ]; then
        minor=$("$incomplete" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        say "Python $minor ($incomplete) lacks the modules that make a virtual environment." \
            "On Debian and Ubuntu: sudo apt install python$minor-venv. Then run this again."
        return 1
    fi
    say "MetaCortex needs Python 3.11, 3.12 or 3.13, and none was found. Install one" \
        "(macOS: brew install python@3.11; Debian and Ubuntu: sudo apt install python3 python3-venv;" \
        "elsewhere: https://www.python.org/downloads/), or name it in PYTHON. Then run this again."
    return 1
}

if ! cmp -s "$root/requirements-dev.txt" "$root/functions/venv/.installed" || ! supported "$python"; then
    if supported "$python"; then
        base=$python
    else
        base=$(find_python) || exit 1
    fi
    "$base" -I -B "$root/scripts/ops/install.py" "$root" || exit $?
fi

# Only the checkout's own modules, whatever the caller's environment says.
PYTHONPATH=$root/scripts:$root/functions
export PYTHONPATH
unset PYTHONHOME
