# The package for redis-py: its types and its tests.
set -euo pipefail
python=$(scripts/python) || { echo 'missing: Python, or its packages (make test installs them)'; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
packages=$PWD/target/python
cd clients/python
"$python" -m mypy --cache-dir "$packages/mypy" src tests bench
"$python" -m pytest
