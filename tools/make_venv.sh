#!/bin/sh
# Makes the virtual environment of the project: make_venv.sh PYTHON VENV
set -eu
python=$1
venv=$2

"$python" - <<'PY' || { echo "Python >= 3.11 is needed" >&2; exit 1; }
import sys
sys.exit(sys.version_info < (3, 11))
PY

# Debian ships venv and the headers of its own Python in packages apart.
if ! "$python" - <<'PY'
import importlib.util, pathlib, sys, sysconfig
has_headers = (pathlib.Path(sysconfig.get_paths()["include"]) / "Python.h").exists()
sys.exit(not (has_headers and importlib.util.find_spec("ensurepip")))
PY
then
    packages="python3-venv python3-dev"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -q && apt-get install -qy $packages
    else
        echo "$python lacks venv or its headers; on Debian: sudo apt-get install $packages" >&2
        exit 1
    fi
fi

"$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$venv"
"$venv/bin/python" -m pip install -q --disable-pip-version-check "torch==2.13.0" "triton==3.7.1" -c constraints.txt
"$venv/bin/python" -m pip install -q --disable-pip-version-check -e ".[test,bench,train]" -c constraints.txt
