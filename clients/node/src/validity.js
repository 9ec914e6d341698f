'use strict';
/**
 * Until when a hold is certain. Pure: times come in as arguments, in ms by a clock that only goes forward.
 *
 * The server ends a lease by its own clock, and the client knows only when it sent a command and when it read the answer.
 * For this reason a lease counts from the moment before its command was sent. A command without an answer may be
 * executed at any time, and commands on several connections in any order, so the shortest of their leases counts.
 */

/** Client and server count whole milliseconds. */
const ROUNDED = 2;
/** The most commands without an answer that are told apart. Of more, the oldest count as open for good. */
const MOST_OPEN = 16;
/** The end of a hold of which nothing is certain. */
const NEVER = -Infinity;

/**
 * @typedef {object} Sent a command that sets the lease
 * @property {number} at
 * @property {number} lease
 *
 * @typedef {object} Asked a question how much is left
 * @property {number} at
 * @property {number} sends the number of commands that set the lease before it
 * @property {boolean} isAlone all of them have their answers
 */

class Validity {
  /** The hold is certain at every moment before this time. */
  until;
  /** No lease that the server has, or may still get, is shorter than this one. */
  sure;
  isLost = false;
  isReleased = false;
  /** The commands without an answer. @type {Set<Sent>} */
  #open = new Set();
  /** Whether commands that are older than those may still be executed. */
  #isOpenForGood = false;
  /** The shortest lease since the first command without an answer was sent. */
  #shortest;
  #sends = 0;

  /**
   * @param {number} now
   * @param {{ lease: number, sent: number, isOpen?: boolean }} granted `isOpen`: another copy of the command may still be
   *   executed
   */
  constructor(now, { lease, sent, isOpen = false }) {
    this.sure = this.#shortest = lease;
    this.until = sent + lease - ROUNDED;
    if (isOpen) this.#open.add({ at: sent, lease });
    this.passes(now);
  }

  /** Whether a command that sets the lease has no answer: the server may still execute it. */
  get isOpen() {
    return this.#isOpenForGood || this.#open.size > 0;
  }

  /** Whether the hold is neither lost nor released. */
  get isHeld() {
    return !this.isLost && !this.isReleased;
  }

  /**
   * A command that sets the lease is about to be sent.
   *
   * @param {number} now
   * @param {number} lease
   * @returns {Sent}
   */
  sends(now, lease) {
    const sent = { at: now, lease };
    this.#shortest = this.isOpen ? Math.min(this.#shortest, lease) : lease;
    this.#open.add(sent);
    if (this.#open.size > MOST_OPEN) {
      const [oldest] = this.#open;
      this.#open.delete(/** @type {Sent} */ (oldest));
      this.#isOpenForGood = true;
    }
    this.#sends += 1;
    this.sure = Math.min(this.sure, lease);
    this.until = Math.min(this.until, now + lease - ROUNDED);
    this.passes(now);
    return sent;
  }

  /**
   * The command was sent once more, and one of the two has the answer. The other one may be executed later.
   *
   * @param {Sent} sent
   */
  repeats({ at, lease }) {
    this.#open.add({ at, lease });
  }

  /**
   * @param {number} now
   * @param {Sent} sent has its answer: executed
   */
  ok(now, sent) {
    this.passes(now);
    this.#open.delete(sent);
    this.sure = this.#shortest;
    this.#extends(sent.at + this.sure);
  }

  /**
   * @param {number} now
   * @param {Sent} sent has its answer, from which no time follows: not executed, or cut by a cap, or of too few servers
   */
  refused(now, sent) {
    this.passes(now);
    this.#open.delete(sent);
  }

  /**
   * A question how much is left is about to be sent.
   *
   * @param {number} now
   * @returns {Asked}
   */
  asks(now) {
    this.passes(now);
    return { at: now, sends: this.#sends, isAlone: !this.isOpen };
  }

  /**
   * @param {number} now
   * @param {Asked} asked
   * @param {number} ms are left
   */
  left(now, asked, ms) {
    this.passes(now);
    if (!this.isHeld) return;
    // If another command is open, the question may have overtaken a shorter lease.
    if (asked.isAlone && asked.sends === this.#sends) this.until = asked.at + ms - ROUNDED;
    else this.#extends(asked.at + Math.min(ms, this.sure));
    this.passes(now);
  }

  /** The server is asked whether it has the hold: until it says so, nothing is certain, and nothing is lost. */
  confirms() {
    this.isLost = false;
    this.until = NEVER;
  }

  /**
   * The lease counts from `sent`. Commands without an answer stay open.
   *
   * @param {number} now
   * @param {{ lease: number, sent: number }} granted
   */
  counts(now, { lease, sent }) {
    this.isLost = false;
    this.until = sent + lease - ROUNDED;
    this.passes(now);
  }

  /** The server has no such hold. */
  gone() {
    if (!this.isReleased) this.isLost = true;
  }

  /**
   * A release is about to be sent, or the program has dropped the hold.
   *
   * @param {number} now
   */
  release(now) {
    this.passes(now);
    if (!this.isLost) this.isReleased = true;
  }

  /**
   * Time has passed.
   *
   * @param {number} now
   */
  passes(now) {
    if (this.until === NEVER) return;
    if (this.isHeld && now >= this.until) this.isLost = true;
  }

  /** @param {number} end of a lease, by the server's counting */
  #extends(end) {
    if (this.isHeld) this.until = Math.max(this.until, end - ROUNDED);
  }
}

exports.ROUNDED = ROUNDED;
exports.Validity = Validity;
