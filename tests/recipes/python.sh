# The recipes for Python. A snippet prints the texts of its comments `# prints: …`, in this order.
set -euo pipefail
python=$(scripts/python) || { echo 'missing: Python, or its packages (make test installs them)'; exit 77; }
export PYTHONDONTWRITEBYTECODE=1

# The programs in the README, on the server of the tests.
programs=$(mktemp -d)
trap 'rm -r "$programs"' EXIT
awk -v to="$programs/readme_" '
    /^```python$/ { number++; file = to number ".py"; next }
    /^```/ { file = "" }
    file { print >file }' docs/recipes/python/README.md
sed -i -e '1i import os' \
    -e 's/redis\.Redis()/redis.Redis(os.environ["DLOCK_TEST_HOST"], int(os.environ["DLOCK_TEST_PORT"]))/' \
    "$programs"/readme_*.py

failed=0
for snippet in docs/recipes/python/*.py "$programs"/readme_*.py; do
    "$python" - <<<'import os, redis; redis.Redis(os.environ["DLOCK_TEST_HOST"], int(os.environ["DLOCK_TEST_PORT"])).flushall()'
    expected=$(sed -n 's/.*# prints: //p' "$snippet")
    if ! printed=$("$python" "$snippet" 2>&1) || [[ $printed != "$expected" ]]; then
        failed=1
        printf '%s\n' "--- $snippet printed:" "$printed" "--- and not:" "$expected"
    fi
done
exit "$failed"
