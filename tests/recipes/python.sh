# The recipes for Python. What a snippet prints is what its comments `# prints: …` say, in this order.
set -euo pipefail
python=$(scripts/python) || { echo 'missing: Python, or its packages (make test installs them)'; exit 77; }
export PYTHONDONTWRITEBYTECODE=1

failed=0
for snippet in docs/recipes/python/*.py; do
    "$python" - <<<'import os, redis; redis.Redis(os.environ["DLOCK_TEST_HOST"], int(os.environ["DLOCK_TEST_PORT"])).flushall()'
    expected=$(sed -n 's/.*# prints: //p' "$snippet")
    if ! printed=$("$python" "$snippet" 2>&1) || [[ $printed != "$expected" ]]; then
        failed=1
        printf '%s\n' "--- $snippet printed:" "$printed" "--- and not:" "$expected"
    fi
done
exit "$failed"
