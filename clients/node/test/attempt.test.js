/** The histories of acquisitions: what is sent next, and how each ends. Without a server. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { historiesOf } from './histories.js';
import { planted, playAttempt, room, said } from './play.js';

const { Attempt } = room('attempt');
const { written, generated } = historiesOf('attempt');
assert(written.length > 20 && generated.length > 500);
for (const history of written) test(history.name, () => playAttempt(Attempt, history));
test(`${generated.length} histories that were generated`, () => generated.forEach((each) => playAttempt(Attempt, each)));

test('a command with SESSION that has no answer is sent again as another owner', () => {
  for (const limit of ['try', 'none', 5000]) {
    const attempt = new Attempt(0, { limit, lease: 9000 });
    attempt.sends(0);
    const step = attempt.orphaned(500);
    assert.equal(said(step), 'fresh try');
    assert(!attempt.isOpen && !attempt.mayChange);
    const copy = attempt.sends(600);
    // The lease counts from the copy that is answered, because the one before has another owner.
    assert.equal(said(attempt.granted(700, copy)), `granted until ${600 + 9000 - 2}`);
  }
});

test('a command with SESSION that has no answer at the limit is cleaned up', () => {
  const attempt = new Attempt(0, { limit: 5000, lease: 9000 });
  attempt.sends(0);
  assert.equal(said(attempt.orphaned(5000)), 'unreachable cleanup leave');
});

/** Each way in which a package was wrong: the line to change. */
const PLANTED = {
  'a grant counts from the copy that was answered': ['for (const { at } of this.#open) this.#since = Math.min(this.#since, at);', ''],
  'a grant after a long wait is believed': ['return now - this.since <= this.#lease / 3 ?', 'return true ?'],
  'silence after the grant ends the wait': ["this.#since === undefined ? this.#again(now) : { what: 'confirm' }", 'this.#since === undefined ? this.#again(now) : this.over(Infinity)'],
  'an answer that confirms is believed, however late': ['now < until ? this.#granted(this.#since)', 'true ? this.#granted(this.#since)'],
  'the nil of a repeat is a refusal': ['(isWait && !this.isOpen)', 'isWait'],
  'a wait that was refused is an outage': ["this.#isRefused && this.#limit !== 'none' ? 'refused'", "false ? 'refused'"],
  'an open copy is left behind': ["this.isOpen ? 'leave' : 'none'", "'none'"],
  'a known grant is left behind': ["this.#since !== undefined ? 'release' : this.isOpen", 'this.isOpen'],
  'a grant that is gone is asked for with its old owner': ['{ ...step, isFresh: true }', 'step'],
  'a fresh owner is granted what the last one was': ['    this.#open.clear();\n', ''],
};
for (const [bug, [find, instead]] of Object.entries(PLANTED)) {
  test(`planted: ${bug}`, () => {
    const { Attempt } = planted('attempt', 'attempt', find, instead);
    assert.throws(() => [...written, ...generated].forEach((each) => playAttempt(Attempt, each)), assert.AssertionError);
  });
}
