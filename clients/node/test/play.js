/** Plays histories on the sources of the package that decide, without a server or a clock. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import Module, { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

import { optionsOf } from './histories.js';

const require = createRequire(import.meta.url);
const sources = dirname(require.resolve('redis-dlock'));

/** Returns the text of a source of the package. */
export function sourceOf(name) {
  return readFileSync(join(sources, `${name}.js`), 'utf8');
}

/** Loads a room: a source of the package that decides, without a clock or a socket of its own (see rooms.test.js). */
export function room(name) {
  return require(join(sources, `${name}.js`));
}

/** Loads a source of the package, with a bug planted in `room`, which is that source or is required by it. */
export function planted(name, room, find, instead) {
  const load = (each) => {
    const text = sourceOf(each);
    const module = new Module(join(sources, `${each}.js`));
    module.filename = module.id;
    module.paths = [];
    module.require = (path) => (path === `./${room}.js` ? load(room) : require(join(sources, path)));
    if (each === room) assert.equal(text.split(find).length, 2, `${find} is in ${room} once`);
    module._compile(each === room ? text.replace(find, () => instead) : text, module.filename);
    return module.exports;
  };
  return load(name);
}

/** Plays an event. Returns the word for the request that the hold makes next, or an empty one. */
function heldAfter(state, at, [event, ...words]) {
  const { hold } = state;
  const id = words[0];
  const options = optionsOf(words);
  switch (event) {
    case 'granted':
      state.sent = new Map();
      state.hold = new state.Heartbeat(at, { lease: +options.lease, sent: +options.sent, isOpen: words.includes('open') });
      return 'renew';
    case 'sent':
      state.sent.set(id, hold.sends(at, +options.lease));
      return 'again';
    case 'ok':
      hold.ok(at, state.sent.get(id));
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
      hold.passes(at);
      return '';
    case 'release':
      hold.release(at);
      return '';
  }
  throw new Error(`no event is called ${event}`);
}

/** Returns what a hold claims, and when its next request is due. */
function claims(hold, at, next) {
  if (hold.isReleased) return { released: '' };
  if (hold.isLost) return { lost: '' };
  const asks = { renew: Math.max(hold.due, at), again: hold.again, check: '', '': '' }[next];
  return { until: String(hold.until), ...(next && { [next]: String(asks) }) };
}

/** Plays the history of a hold, and fails where the hold claims anything else than the history expects. */
export function playHold(Heartbeat, { name, lines }) {
  const state = { Heartbeat };
  for (const { at, event, expected, text } of lines) {
    const next = heldAfter(state, at, event);
    const claimed = claims(state.hold, at, next);
    for (const each of expected) {
      const [what, value = ''] = each.split(' ');
      assert.equal(claimed[what], value, `${name}: ${text}\nit claims ${JSON.stringify(claimed)}`);
    }
  }
}

/** Plays an event. Returns the next step of the acquisition. */
function stepAfter(state, at, [event, id, ...words]) {
  const { attempt, copies, waits } = state;
  const copy = copies?.get(id);
  switch (event) {
    case 'acquire': {
      const { limit, lease } = optionsOf([id, ...words]);
      const isWord = limit === 'try' || limit === 'none';
      state.copies = new Map();
      state.waits = new Set();
      state.attempt = new state.Attempt(at, { limit: isWord ? limit : Number(limit), lease: Number(lease) });
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
      return attempt.ok(at, copy);
    case 'left':
      // The clocks both round to whole milliseconds: two less are certain.
      return attempt.ok(at, copy, copy.at + Number(words[0]) - 2);
    case 'gone':
      return attempt.gone(at);
    case 'cut':
      return attempt.cut(at);
    case 'refused':
      return attempt.refused(at, copy);
    case 'error':
      return attempt.failed(copy);
    case 'over':
      return attempt.over(at);
    case 'cancel':
      return attempt.canceled();
  }
  throw new Error(`no event is called ${event}`);
}

/** Returns a step in the words of the histories. */
export function said({ what, block, isFresh, until, cleanup }) {
  const words = [isFresh && 'fresh', what, block, until !== undefined && `until ${until}`, cleanup && `cleanup ${cleanup}`];
  return words.filter((word) => word || word === 0).join(' ');
}

/** Plays the history of an acquisition, and fails where its step is another than the history expects. */
export function playAttempt(Attempt, { name, lines }) {
  const state = { Attempt };
  for (const { at, event, expected, text } of lines) {
    state.step = stepAfter(state, at, event);
    if (expected.length > 0) assert.equal(said(state.step), expected.join(' '), `${name}: ${text}`);
  }
}
