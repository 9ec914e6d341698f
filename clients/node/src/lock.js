'use strict';
/** A lock that was granted: until when it is known to be held, and how it is kept and released. */

const { LockLost, NoAnswer, TooFewReplicas, mayRepeat, persist } = require('./errors.js');
const { checkLease } = require('./options.js');
const { waitFor } = require('./queue.js');
const { timer, unlessAborted, within } = require('./time.js');

/**
 * @typedef {import('./index.js').Lock} Declared
 * @typedef {import('./connection.js').Connection} Connection
 *
 * @typedef {object} Granted
 * @property {import('./connection.js').Client} client
 * @property {import('./target.js').Target} target
 * @property {string} owner
 * @property {number} token
 * @property {number} sent when the command that was granted was sent
 * @property {import('./options.js').Terms} terms
 * @property {Connection | undefined} own the connection that a session is bound to
 */

/** @implements {Declared} */
class Lock {
  #granted;
  #lease;
  /** Held until then for certain, by performance.now(). */
  #until;
  #lost = new AbortController();
  #released = false;
  /** The connection of a session, while it is open. */
  #own;
  /** @type {NodeJS.Timeout | undefined} */
  #ending;
  /** @type {NodeJS.Timeout | undefined} */
  #keeping;

  /** @param {Granted} granted */
  constructor(granted) {
    this.#granted = granted;
    this.#lease = granted.terms.lease;
    this.#until = granted.sent + this.#lease;
    this.#own = granted.own;
    this.#watchEnd();
    if (!granted.own) return;
    granted.own.closed.then(() => {
      this.#own = undefined;
      this.#lose('the connection of its session ended');
    });
    this.keep();
  }

  get resource() {
    return this.#granted.target.resource;
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
    checkLease(lease);
    if (this.#over()) throw new LockLost(this.resource, 'released', this.signal.reason);
    const sent = performance.now();
    const replies = await unlessAborted(this.#renew(lease), this.signal);
    if (replies.includes(null)) throw this.#lose('the server has no such hold');
    this.#confirmed(sent, lease);
    this.#lease = lease;
  }

  async release() {
    const { client, target, owner, token, terms } = this.#granted;
    this.#released = true;
    this.#stopTimers();
    const commands = target.release(owner, token);
    const socket = client.socket(target.keys[0] ?? '');
    let tries = 0;
    const send = () =>
      persist(() => {
        tries += 1;
        const { send } = tries === 1 && this.#own ? this.#own : client;
        return Promise.all(commands.map((command) => send(command, command[1] ?? '')));
      });
    try {
      const noAnswer = () => new NoAnswer(this.resource);
      const replies = await within(terms.answer, undefined, noAnswer, (signal) => unlessAborted(send(), signal));
      // A second try that finds nothing finds what the first has done, unless it had been lost before.
      const repeated = tries > 1 || client.socket(target.keys[0] ?? '') !== socket;
      return !replies.includes(null) || (repeated && performance.now() < this.#until);
    } finally {
      this.#own?.close();
    }
  }

  async [Symbol.asyncDispose]() {
    await this.release();
  }

  /** Renews the lease whenever a third of it has passed, until the release or until it is lost: see `using`. */
  keep() {
    clearTimeout(this.#keeping);
    this.#keeping = timer(() => void this.#refresh(), this.#lease / 3);
  }

  /**
   * Whether the lock is still held, with at least two thirds of the lease left: asked of the server if the command that
   * was granted waited longer than that.
   *
   * @param {AbortSignal | undefined} signal ends the asking
   */
  async confirm(signal) {
    const sent = this.#until - this.#lease;
    if (performance.now() - sent <= this.#lease / 3) return true;
    clearTimeout(this.#ending);
    try {
      await unlessAborted(this.extend(), signal);
      return true;
    } catch (error) {
      this.release().catch(() => {}); // then the lease ends it
      if (error instanceof LockLost) return false;
      throw error;
    }
  }

  /** @param {number} lease */
  async #renew(lease) {
    const { client, target, owner, token, terms } = this.#granted;
    const commands = target.renew(owner, token, lease);
    const own = this.#own;
    if (terms.replicas === 0) {
      const way = own ?? client;
      return Promise.all(commands.map((command) => persist(() => way.send(command, command[1] ?? ''))));
    }
    const line = own ?? (await client.connect(target.keys[0] ?? ''));
    try {
      const sent = [...commands, waitFor(terms)].map((command) => line.send(command));
      const replies = await Promise.all(sent);
      const acknowledged = Number(replies.pop());
      if (!replies.includes(null) && acknowledged < terms.replicas) {
        throw new TooFewReplicas(this.resource, acknowledged, terms.replicas);
      }
      return replies;
    } finally {
      if (line !== own) line.close();
    }
  }

  async #refresh() {
    try {
      await (this.#own && this.#granted.terms.replicas === 0 ? this.#look(this.#own) : this.extend());
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

  /**
   * The server renews a session. It only finds out whether the server is still there.
   *
   * @param {Connection} own
   */
  async #look(own) {
    const { target, token } = this.#granted;
    const sent = performance.now();
    const left = await Promise.all(target.check(token).map((command) => own.send(command)));
    if (left.includes(null)) throw this.#lose('the server has no such hold');
    this.#confirmed(sent, Math.min(...left.map(Number)));
  }

  /**
   * @param {number} sent
   * @param {number} left
   */
  #confirmed(sent, left) {
    this.#until = sent + left;
    this.#watchEnd();
  }

  #watchEnd() {
    clearTimeout(this.#ending);
    if (this.#over()) return;
    const left = this.#until - performance.now();
    const end = () => (this.#until <= performance.now() ? this.#lose('its lease ended') : this.#watchEnd());
    this.#ending = timer(end, left);
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
    this.#own?.close();
    return lost;
  }

  #stopTimers() {
    clearTimeout(this.#ending);
    clearTimeout(this.#keeping);
  }
}

exports.Lock = Lock;
