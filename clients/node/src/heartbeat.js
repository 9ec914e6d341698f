'use strict';
/** When a hold or a named session must be renewed. Pure, as `validity.js`, which describes the methods passed on. */

const { Validity } = require('./validity.js');

/**
 * @typedef {import('./validity.js').Sent} Sent
 * @typedef {import('./validity.js').Asked} Asked
 */

/** A renewal without an answer is given up after a sixth of the lease, within these limits in ms. */
const PART_FOR_ANSWER = 6;
const [SHORTEST_ANSWER, LONGEST_ANSWER] = [50, 2000];
/** The pause after a failed renewal: lease / 30 or an eighth of the time left, if less, within these limits in ms. */
const [PAUSE, PART_OF_LEFT] = [30, 8];
const [SHORTEST_PAUSE, LONGEST_PAUSE] = [10, 500];

class Heartbeat {
  #validity;
  /** The lease that the program wants. */
  #wanted;
  /** When the next renewal is due. */
  #due;
  /** When the renewal that is on its way is given up. @type {number | undefined} */
  #again;
  /** A cap has shortened a renewal (`MAXHOLD`). Nothing is renewed any more. */
  isCapped = false;

  /**
   * @param {number} now
   * @param {{ lease: number, sent: number, isOpen?: boolean }} granted
   */
  constructor(now, granted) {
    this.#validity = new Validity(now, granted);
    this.#wanted = granted.lease;
    this.#due = Math.max(now, granted.sent + third(this.#lease));
  }

  get until() {
    return this.#validity.until;
  }

  get isLost() {
    return this.#validity.isLost;
  }

  get isReleased() {
    return this.#validity.isReleased;
  }

  get isOpen() {
    return this.#validity.isOpen;
  }

  /** When the next renewal is due, or the end of the hold, if that comes first. */
  get due() {
    return this.isCapped ? Infinity : Math.min(this.#due, this.until);
  }

  /** When the renewal that is on its way is given up. */
  get again() {
    return Math.min(this.#again ?? Infinity, this.until);
  }

  /** The lease to renew by: the program's, or a shorter one that the server may still get. */
  get #lease() {
    return Math.min(this.#wanted, this.#validity.sure);
  }

  /**
   * @param {number} now
   * @param {number} lease
   */
  sends(now, lease) {
    const sent = this.#validity.sends(now, lease);
    this.#wanted = lease;
    this.#again = now + within(Math.floor(this.#lease / PART_FOR_ANSWER), SHORTEST_ANSWER, LONGEST_ANSWER);
    return sent;
  }

  /** @param {Sent} sent */
  repeats(sent) {
    this.#validity.repeats(sent);
  }

  /**
   * @param {number} now
   * @param {Sent} sent
   */
  ok(now, sent) {
    this.#validity.ok(now, sent);
    this.#next(now, sent.at);
  }

  /**
   * @param {number} now
   * @param {Sent} sent
   */
  refused(now, sent) {
    this.#validity.refused(now, sent);
    this.#pause(now);
  }

  /**
   * A renewal is given up. The server may still execute it, at any time.
   *
   * @param {number} now
   */
  cut(now) {
    this.#validity.passes(now);
    this.#pause(now);
  }

  /**
   * The server has executed the renewal, but the hold's cap made the lease shorter. The caller asks how long the hold
   * lasts.
   *
   * @param {number} now
   * @param {Sent} sent
   */
  capped(now, sent) {
    this.#validity.refused(now, sent);
    this.isCapped = true;
  }

  /** @param {number} now */
  asks(now) {
    return this.#validity.asks(now);
  }

  /**
   * @param {number} now
   * @param {Asked} asked
   * @param {number} ms
   */
  left(now, asked, ms) {
    this.#validity.left(now, asked, ms);
  }

  /**
   * The server renews this hold by itself. After a third of the lease, it is asked again how long the hold lasts.
   *
   * @param {number} now
   * @param {Asked} asked
   */
  looked(now, asked) {
    this.#next(now, asked.at);
  }

  confirms() {
    this.#validity.confirms();
  }

  /**
   * @param {number} now
   * @param {{ lease: number, sent: number }} granted
   */
  counts(now, granted) {
    this.#validity.counts(now, granted);
    this.#next(now, granted.sent);
  }

  gone() {
    this.#validity.gone();
  }

  /** @param {number} now */
  release(now) {
    this.#validity.release(now);
  }

  /** @param {number} now */
  passes(now) {
    this.#validity.passes(now);
  }

  /** @param {number} now when the next renewal is due */
  hasten(now) {
    this.#due = now;
  }

  /** The next renewal follows soon, although this one was answered. @param {number} now */
  repeat(now) {
    this.#pause(now);
  }

  /**
   * @param {number} now
   * @param {number} since
   */
  #next(now, since) {
    this.#again = undefined;
    this.#due = Math.max(now, since + third(this.#lease));
  }

  /** @param {number} now */
  #pause(now) {
    this.#again = undefined;
    const part = Math.min(Math.floor(this.#lease / PAUSE), Math.floor((this.until - now) / PART_OF_LEFT));
    this.#due = now + within(part, SHORTEST_PAUSE, LONGEST_PAUSE);
  }
}

/** @param {number} lease */
function third(lease) {
  return Math.floor(lease / 3);
}

/**
 * @param {number} value
 * @param {number} least
 * @param {number} most
 */
function within(value, least, most) {
  return Math.min(Math.max(value, least), most);
}

exports.Heartbeat = Heartbeat;
