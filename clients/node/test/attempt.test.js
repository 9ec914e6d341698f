/** The histories of acquisitions: what is sent next, and how each ends. Without a server. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { historiesOf } from './histories.js';
import { planted, playAttempt, room } from './play.js';

const { Attempt } = room('attempt');
const { written, generated } = historiesOf('attempt');
assert(written.length > 20 && generated.length > 500);
for (const history of written) test(history.name, () => playAttempt(Attempt, history));
test(`${generated.length} histories that were generated`, () => generated.forEach((each) => playAttempt(Attempt, each)));

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
