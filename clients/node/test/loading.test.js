import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { sep } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import * as imported from 'redis-dlock';

const require = createRequire(import.meta.url);

test('the package is loaded from node_modules', () => {
  const file = fileURLToPath(import.meta.resolve('redis-dlock'));
  assert(file.includes(`${sep}node_modules${sep}redis-dlock${sep}`), file);
});

test('import and require give the same exports', () => {
  const required = require('redis-dlock');
  assert.deepEqual(Object.keys(required).sort(), Object.keys(imported).sort());
  for (const [name, value] of Object.entries(required)) assert.equal(imported[name], value, name);
});
