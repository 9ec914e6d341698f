/** A lock that was granted: until when it is known to be held, and how it is kept and given up. */

import { LockLost, mayRepeat, persist } from './errors.js';

/** The longest that setTimeout takes. */
const LONGEST = 2 ** 31 - 1;

/**
 * @typedef {import('./index.js').Lock} Declared
 *
 * @typedef {object} Granted
 * @property {import('./connection.js').Client} client
 * @property {string} key
 * @property {string} resource
 * @property {string} owner
 * @property {number} token
 * @property {number} lease
 * @property {number} sent when the command that was granted was sent
 * @property {import('./connection.js').Connection | undefined} own the connection that a session is bound to
 */

/** @implements {Declared} */
export class Lock {
  #granted;
  #lease;
  /** Held until then for certain, by performance.now(). */
  #until;
  #lost = new AbortController();
  #released = false;
  /** @type {NodeJS.Timeout | undefined} */
  #ending;
  /** @type {NodeJS.Timeout | undefined} */
  #keeping;

  /** @param {Granted} granted */
  constructor(granted) {
    this.#granted = granted;
    this.#lease = granted.lease;
    this.#until = granted.sent + granted.lease;
    this.#watchEnd();
    if (!granted.own) return;
    granted.own.closed.then(() => this.#lose('the connection of its session ended'));
    this.keep();
  }

  get resource() {
    return this.#granted.resource;
  }

  get owner() {
    return this.#granted.owner;
  }

  get token() {
    return this.#granted.token;
  }

  get signal() {
    return this.#lost.signal;
  }

  get remaining() {
    return this.#over() ? 0 : Math.max(0, this.#until - performance.now());
  }

  /** @param {number} [lease] */
  async extend(lease = this.#lease) {
    const { client, key, owner, token, own, resource } = this.#granted;
    if (!Number.isSafeInteger(lease) || lease < 1) throw new RangeError('lease is a whole number of milliseconds, 1 or more');
    if (this.#over()) throw new LockLost(resource, 'released', this.signal.reason);
    const sent = performance.now();
    const command = ['DLOCK.RENEW', key, owner, 'PX', String(lease), 'TOKEN', String(token)];
    const reply = await persist(() => (own ?? client).send(command));
    if (reply === null) throw this.#lose('the server has no such hold');
    this.#lease = lease;
    this.#until = sent + lease;
    this.#watchEnd();
  }

  async release() {
    const { client, key, owner, token, own } = this.#granted;
    this.#released = true;
    this.#stopTimers();
    let tries = 0;
    try {
      const reply = await persist(() => {
        tries += 1;
        return client.send(['DLOCK.RELEASE', key, owner, 'TOKEN', String(token)]);
      });
      // A second try that finds nothing finds what the first has done, unless it had been lost before.
      return reply !== null || (tries > 1 && performance.now() < this.#until);
    } finally {
      own?.close();
    }
  }

  async [Symbol.asyncDispose]() {
    await this.release();
  }

  /** Moves the lease on whenever a third of it has passed, until the release or until it is lost. */
  keep() {
    clearTimeout(this.#keeping);
    this.#keeping = timer(() => void this.#refresh(), this.#lease / 3);
  }

  /**
   * Whether the lock is still held, with at least two thirds of the lease to go: asked of the server if the command
   * that was granted waited longer than that.
   */
  async confirm() {
    const sent = this.#until - this.#lease;
    if (performance.now() - sent <= this.#lease / 3) return true;
    clearTimeout(this.#ending);
    try {
      await this.extend();
      return true;
    } catch (error) {
      await this.release().catch(() => {});
      if (error instanceof LockLost) return false;
      throw error;
    }
  }

  async #refresh() {
    try {
      await (this.#granted.own ? this.#look() : this.extend());
      if (!this.#over()) this.keep();
    } catch (error) {
      if (this.#over()) return;
      if (!mayRepeat(error)) {
        this.#lose('it could not be renewed', error);
        return;
      }
      this.#keeping = timer(() => void this.#refresh(), Math.min(this.#lease / 30, 1000));
    }
  }

  /** A session is renewed by the server. What is to be found out is whether the server is still there. */
  async #look() {
    const { key, token, own } = this.#granted;
    const sent = performance.now();
    const left = await own?.send(['DLOCK.CHECK', key, String(token)]);
    if (left === null) throw this.#lose('the server has no such hold');
    this.#until = sent + Number(left);
    this.#watchEnd();
  }

  #watchEnd() {
    clearTimeout(this.#ending);
    if (this.#over()) return;
    const left = this.#until - performance.now();
    this.#ending = timer(() => (this.#until <= performance.now() ? this.#lose('its lease ended') : this.#watchEnd()), left);
  }

  #over() {
    return this.#released || this.signal.aborted;
  }

  /**
   * @param {string} why
   * @param {unknown} [cause]
   */
  #lose(why, cause) {
    const lost = new LockLost(this.resource, why, cause);
    if (!this.#released) this.#lost.abort(lost);
    this.#stopTimers();
    this.#granted.own?.close();
    return lost;
  }

  #stopTimers() {
    clearTimeout(this.#ending);
    clearTimeout(this.#keeping);
  }
}

/**
 * A timer that does not keep the program running.
 *
 * @param {() => void} then
 * @param {number} after
 */
function timer(then, after) {
  return setTimeout(then, Math.min(Math.max(Math.ceil(after), 0), LONGEST)).unref();
}
