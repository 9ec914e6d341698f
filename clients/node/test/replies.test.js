/** The table of replies: what an error of a server means for an acquisition. Without a server. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { room } from './play.js';

const { isHeard, isNotExecuted, isWrongType, mayRepeat, writesNothing } = room('errors');

/** The meanings that the package tells apart here. */
function meaningOf(error) {
  if (mayRepeat(error)) return isNotExecuted(error) ? 'elsewhere' : 'open';
  if (writesNothing(error)) return 'paused';
  return isWrongType(error) ? 'foreign' : 'other';
}

test('an error of a server means what the table says', () => {
  const lines = readFileSync(new URL('../tables/replies.txt', import.meta.url), 'utf8').split('\n');
  const rows = lines.map((line) => /^"(.*)" => (.*)$/.exec(line)).filter((row) => row !== null);
  assert(rows.length > 20);
  for (const [line, reply, meaning] of rows) {
    const error = new Error(reply);
    const told = ['elsewhere', 'open', 'paused', 'foreign'].includes(meaning) ? meaning : 'other';
    assert.equal(meaningOf(error), told, line);
    assert.equal(isHeard(error), !['elsewhere', 'open'].includes(meaning), line);
  }
});
