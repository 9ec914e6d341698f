'use strict';
/**
 * The course of an acquisition: what to send next, and how it ends. Like `validity.js`, this file reads no clock and
 * sends nothing: the caller reports each event by a method, which returns the next step. All times are in ms of a
 * monotonic clock.
 *
 * Copies of the acquiring command have the same owner and the same REQUEST. A copy without an answer is open: the
 * request may be waiting, may have been granted, or may still be executed. Open copies with SESSION have different
 * owners.
 */

const { ROUNDED } = require('./validity.js');

/**
 * @typedef {object} Copy a command that was sent
 * @property {number} at when it was sent
 *
 * @typedef {'none' | 'leave' | 'release'} Cleanup what is left to do at the end. `leave`: leave the queue, and release
 *   what may have been granted; `release`: release the grant that is known
 *
 * @typedef {object} Step `try`: send the command without BLOCK; `wait`: send it with BLOCK; `confirm`: renew the grant.
 *   The rest are outcomes
 * @property {'try' | 'wait' | 'confirm' | 'granted' | 'refused' | 'unreachable' | 'canceled' | 'failed'} what
 * @property {number} [block] the value of BLOCK in ms. 0: without a limit
 * @property {boolean} [isFresh] the command gets a new owner, because the last grant is over, or because a copy may
 *   still be executed that would bind the hold to another connection
 * @property {number} [until] the time until which the grant is certain
 * @property {Cleanup} [cleanup]
 */

/** An acquisition. */
class Attempt {
  /** The time at which it ends without a grant: Infinity if it has no limit. */
  #end;
  #limit;
  #lease;
  /** The copies without an answer. @type {Set<Copy>} */
  #open = new Set();
  /** The renewals of the grant without an answer, of which most acquisitions have none. @type {Set<Copy> | undefined} */
  #renewals;
  /** From when the lease of the grant counts, if there is a grant. @type {number | undefined} */
  #since;
  /** Whether there was any answer, and whether that was a nil. */
  #isAnswered = false;
  #isRefused = false;

  /**
   * @param {number} now
   * @param {{ limit: number | 'try' | 'none', lease: number, answer?: number }} how `limit`: how long it waits for the
   *   lock; `try`: it does not wait. `answer`: how long an attempt that does not wait looks for an answer
   */
  constructor(now, { limit, lease, answer = 1000 }) {
    this.#limit = limit;
    this.#lease = lease;
    this.#end = now + (limit === 'none' ? Infinity : limit === 'try' ? answer : limit);
  }

  /** When the earliest copy was sent that may be the granted one: the lease counts from then. */
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

  /** The first step. @returns {Step} */
  first() {
    return { what: 'try' };
  }

  /**
   * The command of the last step is about to be sent.
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
   * A renewal of the grant is about to be sent, though no step asked for one.
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
   * The answer to such a renewal has come.
   *
   * @param {number} now
   * @param {Copy} renewal
   * @param {boolean} isWhole whether it was executed and no cap has cut it
   * @returns {Step}
   */
  renewed(now, renewal, isWhole) {
    this.#renewals?.delete(renewal);
    return isWhole ? this.ok(now, renewal) : this.aged(now);
  }

  /**
   * Time has passed since the grant was read, for example for replicas. After a third of the lease, it is confirmed.
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
   * @param {boolean} [isWait] whether it was sent with BLOCK
   * @returns {Step}
   */
  nil(now, copy, isWait = false) {
    this.#isAnswered = this.#isRefused = true;
    this.#open.delete(copy);
    // The grant of an earlier copy is confirmed.
    if (this.#since !== undefined) return { what: 'confirm' };
    // While another copy is open, the nil may mean that the other one took this one's place in the queue.
    if (this.#limit === 'try' || (isWait && !this.isOpen)) return this.#ended('refused');
    return this.#waitOr(now);
  }

  /**
   * A renewal of the grant was executed.
   *
   * @param {number} now
   * @param {Copy} copy the renewal
   * @param {number} [end] until when the hold is certain, if a cap has cut its lease
   * @returns {Step}
   */
  ok(now, copy, end = Infinity) {
    const until = Math.min(end, copy.at + this.#lease - ROUNDED);
    // `since` is set so that since + lease - ROUNDED is `until`, even if a cap has cut the lease.
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
    return this.#afresh(step);
  }

  /**
   * The connection of the grant is lost, or its server is no primary any more. The grant counts as an open copy again:
   * the next copy gets it, if the server that it is sent to has it.
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
   * A command got no answer, and may still be executed.
   *
   * @param {number} now
   * @returns {Step}
   */
  cut(now) {
    return this.#since === undefined ? this.#again(now) : { what: 'confirm' };
  }

  /**
   * A command with SESSION got no answer on its connection. If the server executes it later, it binds the hold to that
   * connection, whose end releases the hold. The lock is asked for again, as another owner.
   *
   * @param {number} now
   * @returns {Step}
   */
  orphaned(now) {
    const step = this.#again(now);
    return step.what === 'try' || step.what === 'wait' ? this.#afresh(step) : step;
  }

  /**
   * A server has refused a command without executing it. Another server may execute it.
   *
   * @param {number} now
   * @param {Copy} copy
   * @returns {Step}
   */
  refused(now, copy) {
    this.#open.delete(copy);
    return this.cut(now);
  }

  /**
   * A server has refused the command with an error that ends the acquisition.
   *
   * @param {Copy} copy
   * @returns {Step}
   */
  failed(copy) {
    this.#open.delete(copy);
    return this.#ended('failed');
  }

  /**
   * The limit has passed, or no server has answered for too long. A grant that is still certain counts.
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

  /** The caller gives up. @returns {Step} */
  canceled() {
    return this.#ended('canceled');
  }

  /**
   * Sends the command again. Until a server has answered, copies are sent without BLOCK.
   *
   * @param {number} now
   * @returns {Step}
   */
  #again(now) {
    const isTry = this.#limit === 'try' || !this.#isAnswered;
    if (!isTry) return this.#waitOr(now);
    return now < this.#end ? { what: 'try' } : this.over(now);
  }

  /**
   * Goes on as a new owner, whose holds no earlier command affects.
   *
   * @param {Step} step
   * @returns {Step}
   */
  #afresh(step) {
    this.#open.clear();
    this.#renewals?.clear();
    return { ...step, isFresh: true };
  }

  /**
   * Waits for the rest of the limit, or ends if it has passed.
   *
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
