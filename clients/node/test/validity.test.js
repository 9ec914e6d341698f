/** Plays the histories of holds, without a server: until when a hold is certain, and when it is renewed. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { historiesOf } from './histories.js';
import { planted, playHold, room } from './play.js';

const { Heartbeat } = room('heartbeat');
const { written, generated } = historiesOf('validity');
assert(written.length > 20 && generated.length > 1000, 'histories are missing');
for (const history of written) test(history.name, () => playHold(Heartbeat, history));
test(`${generated.length} generated histories`, () => generated.forEach((each) => playHold(Heartbeat, each)));

/**
 * Bugs that the histories must find: the source file to change, the text in it, and its replacement. The README of the
 * histories explains the sure lease.
 */
const PLANTED = {
  'a lease counts from when the answer was read': ['validity', 'sent.at + this.sure', 'now + this.sure'],
  'CHECK counts from when its answer was read': ['validity', 'asked.at + ms - ROUNDED', 'now + ms - ROUNDED'],
  'CHECK that overtook a shorter lease is believed': ['validity', 'asked.isAlone && ', ''],
  'an answer makes its own lease the sure one': ['validity', 'this.sure = this.#shortest;', 'this.sure = sent.lease;'],
  'a shorter lease counts only after its answer': ['validity', 'this.until = Math.min(this.until, now + lease - ROUNDED);', ''],
  'a lost hold comes back': ['validity', 'if (this.isHeld && now >= this.until) this.isLost = true;', 'this.isLost = now >= this.until;'],
  'a copy that may still come is forgotten': ['validity', 'if (isOpen) this.#open', 'if (false) this.#open'],
  'a release is undone by an answer': ['validity', 'this.isReleased = true', 'this.isReleased = false'],
  'a hold that the server does not have still counts': ['validity', 'if (!this.isReleased) this.isLost = true;', ''],
  'a renewal is due a third after its answer': ['heartbeat', 'since + third(this.#lease)', 'now + third(this.#lease)'],
  'a renewal is due by the wanted lease, not by the sure one': ['heartbeat', 'Math.min(this.#wanted, this.#validity.sure)', 'this.#wanted'],
};
for (const [bug, [where, find, instead]] of Object.entries(PLANTED)) {
  test(`a history finds this bug: ${bug}`, () => {
    const { Heartbeat } = planted('heartbeat', where, find, instead);
    assert.throws(() => [...written, ...generated].forEach((each) => playHold(Heartbeat, each)), assert.AssertionError);
  });
}
