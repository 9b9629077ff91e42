# shellcheck shell=bash
# Sourced by the other scripts: the checkout's own environment. Everything the tools keep stays below .cache.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$ROOT"

VENV=${VENV:-.venv}
case $VENV in /*) ;; *) VENV=$ROOT/$VENV ;; esac

export VIRTUAL_ENV=$VENV
export PATH=$VENV/bin:$PATH:/usr/sbin:/sbin
export PIP_CACHE_DIR=$ROOT/.cache/pip PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_WARN_SCRIPT_LOCATION=1
export ANSIBLE_HOME=$ROOT/.cache/ansible
export ANSIBLE_COLLECTIONS_PATH=$ROOT/.cache/collections PYTHONPATH=$ROOT/.cache/collections
export PYTEST_DEBUG_TEMPROOT=$ROOT/.cache/tmp PYTHONDONTWRITEBYTECODE=
unset ANSIBLE_CONFIG

die() {
    echo "error: $*" >&2
    exit 1
}
