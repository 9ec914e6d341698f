'use strict';
/**
 * The course of an acquisition: what to send next, and how it ends. Pure, as `validity`: each event gives the next
 * step.
 *
 * Copies of the acquiring command have one owner and one REQUEST. A copy without an answer is open: it may be waiting,
 * may have been granted, and may still be executed.
 */

const { ROUNDED } = require('./validity.js');

/**
 * @typedef {object} Copy a command that was sent
 * @property {number} at
 *
 * @typedef {'none' | 'leave' | 'release'} Cleanup nothing, or leave the queue and release what was granted, or release
 *   the grant that is known
 *
 * @typedef {object} Step `try`: send without BLOCK; `wait`: with it; `confirm`: renew the grant. The rest are outcomes
 * @property {'try' | 'wait' | 'confirm' | 'granted' | 'refused' | 'unreachable' | 'canceled' | 'failed'} what
 * @property {number} [block] 0: without a limit
 * @property {boolean} [isFresh] with a new owner: the last grant is over
 * @property {number} [until] the time until which the grant is certain
 * @property {Cleanup} [cleanup]
 */

class Attempt {
  #end;
  #limit;
  #lease;
  /** @type {Set<Copy>} */
  #open = new Set();
  /** The renewals of the grant without an answer. Made when there is one: few acquisitions have any. @type {Set<Copy> | undefined} */
  #renewals;
  /** Since when the grant counts, if there is one. @type {number | undefined} */
  #since;
  /** Whether there was any answer, and whether that was a nil. */
  #isAnswered = false;
  #isRefused = false;

  /**
   * @param {number} now
   * @param {{ limit: number | 'try' | 'none', lease: number, answer?: number }} how `answer`: for how long an attempt that
   *   does not wait looks for an answer
   */
  constructor(now, { limit, lease, answer = 1000 }) {
    this.#limit = limit;
    this.#lease = lease;
    this.#end = now + (limit === 'none' ? Infinity : limit === 'try' ? answer : limit);
  }

  /** Since when a grant counts: the earliest copy that may have been granted was sent then. */
  get since() {
    return this.#since ?? Infinity;
  }

  /** Whether a copy may still be executed. */
  get isOpen() {
    return this.#open.size > 0;
  }

  /** Whether a copy may have been granted. */
  get mayBeGranted() {
    return this.isOpen || this.#since !== undefined;
  }

  /** Whether a command that sets the lease of the grant may still be executed. */
  get mayChange() {
    return this.isOpen || (this.#renewals?.size ?? 0) > 0;
  }

  /** @returns {Step} */
  first() {
    return { what: 'try' };
  }

  /**
   * The command that was asked for is about to be sent.
   *
   * @param {number} now
   * @returns {Copy}
   */
  sends(now) {
    const copy = { at: now };
    if (this.#since === undefined) this.#open.add(copy);
    return copy;
  }

  /**
   * A renewal of the grant is about to be sent, for another reason than its age.
   *
   * @param {number} now
   * @returns {Copy}
   */
  renews(now) {
    const renewal = { at: now };
    (this.#renewals ??= new Set()).add(renewal);
    return renewal;
  }

  /**
   * The renewal has its answer.
   *
   * @param {number} now
   * @param {Copy} renewal
   * @param {boolean} isWhole executed, and no cap has cut it
   * @returns {Step}
   */
  renewed(now, renewal, isWhole) {
    this.#renewals?.delete(renewal);
    return isWhole ? this.ok(now, renewal) : this.aged(now);
  }

  /**
   * Time has passed since the grant was read, for example for replicas.
   *
   * @param {number} now
   * @returns {Step}
   */
  aged(now) {
    return now - this.since <= this.#lease / 3 ? this.#granted(this.since) : { what: 'confirm' };
  }

  /**
   * @param {number} now
   * @param {Copy} copy
   * @returns {Step}
   */
  granted(now, copy) {
    this.#isAnswered = true;
    this.#open.delete(copy);
    this.#since = Math.min(this.#since ?? copy.at, copy.at);
    for (const { at } of this.#open) this.#since = Math.min(this.#since, at);
    return this.aged(now);
  }

  /**
   * @param {number} now
   * @param {Copy} copy
   * @param {boolean} [isWait] it was sent with BLOCK
   * @returns {Step}
   */
  nil(now, copy, isWait = false) {
    this.#isAnswered = this.#isRefused = true;
    this.#open.delete(copy);
    // The grant of another copy is being confirmed.
    if (this.#since !== undefined) return { what: 'confirm' };
    // While another copy is open, that one has taken the place of this one.
    if (this.#limit === 'try' || (isWait && !this.isOpen)) return this.#ended('refused');
    return this.#waitOr(now);
  }

  /**
   * @param {number} now
   * @param {Copy} copy the renewal that confirms the grant, which was executed
   * @param {number} [end] until when the hold is certain, if a cap has cut its lease
   * @returns {Step}
   */
  ok(now, copy, end = Infinity) {
    const until = Math.min(end, copy.at + this.#lease - ROUNDED);
    // The lease of the hold ends at `until`, so this is when it began.
    this.#since = until + ROUNDED - this.#lease;
    return now < until ? this.#granted(this.#since) : { what: 'confirm' };
  }

  /**
   * The server does not have the hold any more.
   *
   * @param {number} now
   * @returns {Step}
   */
  gone(now) {
    this.#isRefused = true;
    this.#since = undefined;
    const step = this.#again(now);
    if (step.what !== 'try' && step.what !== 'wait') return this.#ended('refused');
    this.#open.clear();
    this.#renewals?.clear();
    return { ...step, isFresh: true };
  }

  /**
   * The connection of the grant is lost, or its server is no primary any more. A copy that is sent to another server
   * gets the grant, if that server has it.
   *
   * @param {number} now
   * @returns {Step}
   */
  lost(now) {
    if (this.#since !== undefined) this.#open.add({ at: this.#since });
    this.#since = undefined;
    return this.#again(now);
  }

  /**
   * No answer: the copy may still be executed.
   *
   * @param {number} now
   * @returns {Step}
   */
  cut(now) {
    return this.#since === undefined ? this.#again(now) : { what: 'confirm' };
  }

  /**
   * @param {number} now
   * @param {Copy} copy not executed, to be tried elsewhere
   * @returns {Step}
   */
  refused(now, copy) {
    this.#open.delete(copy);
    return this.cut(now);
  }

  /**
   * @param {Copy} copy refused for good
   * @returns {Step}
   */
  failed(copy) {
    this.#open.delete(copy);
    return this.#ended('failed');
  }

  /**
   * The limit has passed, or no server has answered for too long.
   *
   * @param {number} now
   * @returns {Step}
   */
  over(now) {
    if (this.#since !== undefined) {
      return now < this.#since + this.#lease - ROUNDED ? this.#granted(this.#since) : this.#ended('unreachable');
    }
    return this.#ended(this.#isRefused && this.#limit !== 'none' ? 'refused' : 'unreachable');
  }

  /** @returns {Step} */
  canceled() {
    return this.#ended('canceled');
  }

  /**
   * @param {number} now
   * @returns {Step}
   */
  #again(now) {
    const isTry = this.#limit === 'try' || !this.#isAnswered;
    if (!isTry) return this.#waitOr(now);
    return now < this.#end ? { what: 'try' } : this.over(now);
  }

  /**
   * @param {number} now
   * @returns {Step}
   */
  #waitOr(now) {
    if (this.#limit === 'none') return { what: 'wait', block: 0 };
    const left = Math.ceil(this.#end - now);
    return left > 0 ? { what: 'wait', block: left } : this.over(now);
  }

  /**
   * @param {number} since
   * @returns {Step}
   */
  #granted(since) {
    return { what: 'granted', until: since + this.#lease - ROUNDED };
  }

  /**
   * @param {'refused' | 'unreachable' | 'canceled' | 'failed'} what
   * @returns {Step}
   */
  #ended(what) {
    return { what, cleanup: this.#since !== undefined ? 'release' : this.isOpen ? 'leave' : 'none' };
  }
}

exports.Attempt = Attempt;
