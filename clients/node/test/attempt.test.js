/** The histories of acquisitions: what is sent next, and how each ends. Without a server. */

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { test } from 'node:test';

import { historiesOf, optionsOf } from './histories.js';

const require = createRequire(import.meta.url);
const sources = dirname(require.resolve('redis-dlock'));
const { Attempt } = require(join(sources, 'attempt.js'));

/** Plays an event, and gives the next step. */
function played(state, at, [event, id, ...words]) {
  const { attempt, copies, waits } = state;
  const copy = copies?.get(id);
  switch (event) {
    case 'acquire': {
      const { limit, lease } = optionsOf([id, ...words]);
      const isWord = limit === 'try' || limit === 'none';
      state.copies = new Map();
      state.waits = new Set();
      state.attempt = new Attempt(at, { limit: isWord ? limit : Number(limit), lease: Number(lease) });
      return state.attempt.first();
    }
    case 'sent':
      copies.set(id, attempt.sends(at));
      if (state.step.what === 'wait') waits.add(id);
      return state.step;
    case 'granted':
      return attempt.granted(at, copy);
    case 'nil':
      return attempt.nil(at, copy, waits.has(id));
    case 'ok':
      return attempt.confirmed(at, copy);
    case 'gone':
      return attempt.gone(at);
    case 'cut':
      return attempt.cut(at);
    case 'refused':
      return attempt.refused(at, copy);
    case 'error':
      return attempt.error(copy);
    case 'over':
      return attempt.over(at);
    case 'cancel':
      return attempt.cancel();
  }
  throw new Error(`no event is called ${event}`);
}

/** A step in the words of the histories. */
function said({ what, block, isFresh, until, cleanup }) {
  const words = [isFresh && 'fresh', what, block, until !== undefined && `until ${until}`, cleanup && `cleanup ${cleanup}`];
  return words.filter((word) => word || word === 0).join(' ');
}

function play({ name, lines }) {
  const state = {};
  for (const { at, event, expected, text } of lines) {
    state.step = played(state, at, event);
    if (expected.length > 0) assert.equal(said(state.step), expected.join(' '), `${name}: ${text}`);
  }
}

const { written, generated } = historiesOf('attempt');
assert(written.length > 20);
for (const history of written) test(history.name, () => play(history));
test(`${generated.length} histories that were generated`, () => generated.forEach(play));
