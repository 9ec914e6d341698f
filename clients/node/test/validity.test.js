/** The histories of holds: until when they are certain, and when they are renewed. Without a server. */

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { test } from 'node:test';

import { historiesOf, optionsOf } from './histories.js';

const require = createRequire(import.meta.url);
const sources = dirname(require.resolve('redis-dlock'));
const { Heartbeat } = require(join(sources, 'heartbeat.js'));

/** Plays an event, and gives what is true then. */
function played(state, at, [event, ...words]) {
  const { hold } = state;
  const id = words[0];
  const options = optionsOf(words);
  switch (event) {
    case 'granted':
      state.sent = new Map();
      state.hold = new Heartbeat(at, { lease: +options.lease, sent: +options.sent, isOpen: words.includes('open') });
      return 'renew';
    case 'sent':
      state.sent.set(id, hold.sends(at, +options.lease));
      return 'again';
    case 'ok':
      hold.executed(at, state.sent.get(id));
      return 'renew';
    case 'cut':
      hold.cut(at, state.sent.get(id));
      return 'renew';
    case 'refused':
      hold.refused(at, state.sent.get(id));
      return 'renew';
    case 'capped':
      hold.capped(at, state.sent.get(id));
      return 'check';
    case 'asked':
      state.sent.set(id, hold.asks(at));
      return '';
    case 'left':
      hold.left(at, state.sent.get(id), Number(words[1]));
      return 'renew';
    case 'nil':
      hold.gone();
      return '';
    case 'now':
      hold.at(at);
      return '';
    case 'release':
      hold.release(at);
      return '';
  }
  throw new Error(`no event is called ${event}`);
}

/** What the hold claims, and what it asks for next. */
function claims(hold, at, next) {
  if (hold.isReleased) return { released: '' };
  if (hold.isLost) return { lost: '' };
  const asks = { renew: Math.max(hold.due, at), again: hold.again, check: '', '': '' }[next];
  return { until: String(hold.until), ...(next && { [next]: String(asks) }) };
}

function play({ name, lines }) {
  const state = {};
  for (const { at, event, expected, text } of lines) {
    const next = played(state, at, event);
    const claimed = claims(state.hold, at, next);
    for (const each of expected) {
      const [what, value = ''] = each.split(' ');
      assert.equal(claimed[what], value, `${name}: ${text}\nit claims ${JSON.stringify(claimed)}`);
    }
  }
}

const { written, generated } = historiesOf('validity');
assert(written.length > 20 && generated.length > 1000);
for (const history of written) test(history.name, () => play(history));
test(`${generated.length} histories that were generated`, () => generated.forEach(play));
