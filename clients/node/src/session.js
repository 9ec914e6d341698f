'use strict';
/** A named session: one heartbeat for all locks of a program. */

const { randomUUID } = require('node:crypto');

const { ask, SILENCE } = require('./ask.js');
const { clientOf, isCluster } = require('./clients.js');
const { LockLost, NoAnswer, isAnswer, isWrongType } = require('./errors.js');
const { timer, unlessAborted, within } = require('./time.js');

/**
 * @typedef {import('./index.js').Session} Declared
 *
 * @typedef {object} Binding a hold that is bound to a session
 * @property {string[][]} bind the commands that bind it again
 * @property {(why: string, cause?: unknown) => void} lose
 * @property {number | undefined} unbound until when it is certain although it must be bound again, by performance.now()
 */

/**
 * The lease of each lock is at least this many times the session's timeout. The server renews it when a third has
 * passed, so a hold that lost its session outlives the program's belief in it.
 */
const LEASES = 3;
/** The shortest and the longest timeout on the server, in ms. */
const SHORTEST = 300;
const LONGEST = 3_600_000;
/** One exchange may take this part of the timeout, and how long at most and at least, in ms. */
const PATIENCE = 1 / 6;
const LONGEST_PATIENCE = 2000;
const SHORTEST_PATIENCE = 100;
/** How long opening and closing look for a server, in ms. */
const TRY = 1150;
/** How many locks are bound again in one exchange. */
const AT_ONCE = 100;

const NEW = 'it was not opened';
const LATE = 'no heartbeat was confirmed within its timeout';
const CLOSED = 'it was closed';

/** @implements {Declared} */
class Session {
  #given;
  #client;
  #manual;
  #timeout;
  #id = randomUUID();
  #lost = new AbortController();
  /** Aborted when it is lost or closed. */
  #over = new AbortController();
  /** Why it is not open. @type {string | undefined} */
  #notOpen = NEW;
  /** Until when the server has it for certain, and when the next heartbeat is due, by performance.now(). */
  #until = -Infinity;
  #due = -Infinity;
  #isBeaten = false;
  /** Whether a heartbeat is on its way. */
  #isBusy = false;
  /** Why the last heartbeat failed, if it did. @type {unknown} */
  #failure;
  #openings = 0;
  /** @type {Set<Binding>} */
  #bindings = new Set();
  /** Releases that no server answered. @type {Set<string[][]>} */
  #owed = new Set();
  /** Called after the next heartbeat. @type {Set<() => void>} */
  #waiting = new Set();
  /** @type {NodeJS.Timeout | undefined} */
  #timer;

  /**
   * @param {import('./index.js').SessionClient} client
   * @param {import('./index.js').SessionOptions} [options]
   */
  constructor(client, { timeout = 10_000, manual = false } = {}) {
    if (isCluster(client)) throw new TypeError('a session needs the client of one server, not of a cluster');
    if (!Number.isSafeInteger(timeout) || timeout < SHORTEST || timeout > LONGEST) {
      throw new RangeError('timeout is a whole number of milliseconds, 300 to 3600000');
    }
    if (typeof manual !== 'boolean') throw new TypeError('manual is true or false');
    this.#client = clientOf(client);
    this.#given = client;
    this.#timeout = timeout;
    this.#manual = manual;
  }

  get id() {
    return this.#id;
  }

  get timeout() {
    return this.#timeout;
  }

  get lost() {
    return this.#lost.signal;
  }

  get isOpen() {
    return this.#reason() === undefined;
  }

  async open() {
    if (this.#notOpen !== NEW) throw new Error(`a session is opened once: ${this.#notOpen ?? 'it is open'}`);
    if (this.#client.isClosed()) throw new Error('the client is closed: connect it before you open a session');
    await this.#round(TRY);
    this.#arm();
    return this;
  }

  async close() {
    const wasOpen = this.#notOpen === undefined;
    this.#notOpen = CLOSED;
    if (!wasOpen) return;
    this.#end();
    this.#loseSome([...this.#bindings], 'its session was closed');
    await this.#ask([['DLOCK.SESSION', this.#id, 'CLOSE']], TRY);
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }

  beat() {
    this.#isBeaten = true;
    if (performance.now() >= this.#due && !this.#isBusy) this.#arm();
  }

  // For its locks

  /** @param {unknown} client */
  isOf(client) {
    return this.#given === client;
  }

  get openings() {
    return this.#openings;
  }

  /** Throws if it is not open. */
  check() {
    const why = this.#reason();
    if (why !== undefined) throw new Error(`the session is not open: ${why}`, { cause: this.#failure });
  }

  /** @param {number} lease of a lock */
  leaseOf(lease) {
    return Math.max(lease, LEASES * this.#timeout);
  }

  /**
   * The server does not know it. The next heartbeat opens it again, and is awaited.
   *
   * @param {AbortSignal} signal ends the waiting
   */
  async reopened(signal) {
    this.check();
    /** @type {Promise<void>} */
    const next = new Promise((resolve) => this.#waiting.add(resolve));
    this.#hasten();
    await unlessAborted(next, signal);
    this.check();
  }

  /**
   * @param {Binding} binding of a lock that was granted
   * @param {number} openings how often the session had been opened before
   */
  join(binding, openings) {
    this.check();
    this.#bindings.add(binding);
    if (openings === this.#openings) return;
    binding.unbound = this.#until;
    this.#hasten();
  }

  /** @param {Binding} binding of a lock that is about to be released */
  leave(binding) {
    this.#bindings.delete(binding);
  }

  /**
   * @param {Binding} binding
   * @returns {number} until when the hold is certain
   */
  untilOf(binding) {
    return Math.min(this.#until, binding.unbound ?? Infinity);
  }

  /** @param {string[][]} releases that no server answered: without its session, the hold would end with its lease */
  owe(releases) {
    if (this.#notOpen === undefined) this.#owed.add(releases);
  }

  // Heartbeats

  #reason() {
    return this.#notOpen ?? (performance.now() >= this.#until ? LATE : undefined);
  }

  #hasten() {
    this.#due = performance.now();
    this.#isBeaten = true;
    this.#arm();
  }

  #arm() {
    clearTimeout(this.#timer);
    if (this.#notOpen !== undefined) return;
    let next = this.#until;
    for (const { unbound } of this.#bindings) next = Math.min(next, unbound ?? Infinity);
    if (!this.#isBusy && (!this.#manual || this.#isBeaten)) next = Math.min(next, this.#due);
    // After a turn for what has arrived while the program was busy.
    this.#timer = timer(() => setImmediate(() => this.#turn()), next - performance.now());
  }

  #turn() {
    if (this.#notOpen !== undefined) return;
    const now = performance.now();
    if (now >= this.#until) return this.#lose();
    const late = [...this.#bindings].filter(({ unbound }) => unbound !== undefined && now >= unbound);
    this.#loseSome(late, 'it was not bound to the session again in time');
    if (now >= this.#due && !this.#isBusy && (!this.#manual || this.#isBeaten)) void this.#beat();
    else this.#arm();
  }

  async #beat() {
    this.#isBeaten = false;
    this.#isBusy = true;
    this.#arm();
    try {
      await this.#round();
      this.#failure = undefined;
    } catch (error) {
      this.#failure = error;
    }
    this.#isBusy = false;
    const isUnbound = [...this.#bindings].some(({ unbound }) => unbound !== undefined);
    if (this.#failure !== undefined || isUnbound) {
      this.#due = Math.min(performance.now() + Math.min(this.#timeout / 30, 1000), this.#until);
      this.#isBeaten = true;
    }
    this.#wakeWaiting();
    this.#arm();
  }

  /**
   * A heartbeat, and what follows from its reply. Opens the session if the server does not know it.
   *
   * @param {number} [limit]
   */
  async #round(limit) {
    const known = [...this.#bindings];
    let sent = performance.now();
    let bound = this.#openings === 0 ? undefined : await this.#heartbeat('XX', limit);
    if (this.#notOpen === CLOSED) return;
    if (bound === undefined) {
      this.#unbind();
      sent = performance.now();
      bound = await this.#heartbeat('NX', limit);
      if (bound === null) {
        // An earlier attempt has opened it, and its reply was lost.
        sent = performance.now();
        bound = await this.#heartbeat('XX', limit);
      }
    }
    const isFirst = this.#until === -Infinity;
    if (this.#notOpen === CLOSED || (!isFirst && performance.now() >= this.#until)) return;
    this.#until = sent + this.#timeout;
    this.#due = sent + this.#timeout / 3;
    if (isFirst) this.#notOpen = undefined;
    await this.#bindAgain(known, Number(bound));
    for (const releases of this.#owed) await this.#repay(releases);
  }

  /** @param {string[][]} releases */
  async #repay(releases) {
    try {
      await this.#ask(releases);
    } catch (error) {
      if (!isAnswer(error)) throw error;
      if (!isWrongType(error)) return;
    }
    this.#owed.delete(releases);
  }

  /**
   * @param {'NX' | 'XX'} option
   * @param {number} [limit]
   * @returns {Promise<unknown>} undefined: the server does not know the session
   */
  async #heartbeat(option, limit) {
    try {
      const command = ['DLOCK.SESSION', this.#id, 'PX', String(this.#timeout), option];
      return (await this.#ask([command], limit))[0];
    } catch (error) {
      if (isNoSession(error)) return undefined;
      throw error;
    }
  }

  /** The server has none of the bindings, and the holds are certain only for as long as they were. */
  #unbind() {
    this.#openings += 1;
    for (const binding of this.#bindings) binding.unbound ??= this.#until;
  }

  /**
   * @param {Binding[]} known those that the server had when it was asked
   * @param {number} bound how many it has
   */
  async #bindAgain(known, bound) {
    const there = known.filter((binding) => this.#bindings.has(binding));
    const expected = there.reduce((sum, { bind }) => sum + bind.length, 0);
    const unbound = () => [...this.#bindings].filter((binding) => binding.unbound !== undefined);
    const again = bound < expected ? there : unbound();
    while (again.length > 0 && performance.now() < this.#due) {
      const some = again.splice(0, AT_ONCE).filter((binding) => this.#bindings.has(binding));
      if (some.length > 0) await this.#bind(some);
    }
  }

  /** @param {Binding[]} some */
  async #bind(some) {
    try {
      const replies = await this.#ask(some.flatMap(({ bind }) => bind));
      for (const binding of some) this.#bound(binding, replies.splice(0, binding.bind.length));
    } catch (error) {
      if (isNoSession(error) || !isAnswer(error)) throw error;
      // The server refused one of them. The next round tries again, until the hold is not certain any more.
      if (some.length > 1) for (const binding of some) await this.#bind([binding]);
      else if (isWrongType(error)) this.#loseSome(some, 'the key is no lock any more');
    }
  }

  /**
   * @param {Binding} binding
   * @param {unknown[]} replies
   */
  #bound(binding, replies) {
    if (replies.includes(null)) this.#loseSome([binding], 'the server has no such hold');
    else binding.unbound = undefined;
  }

  /**
   * @param {string[][]} commands
   * @param {number} [limit]
   */
  async #ask(commands, limit) {
    const part = Math.max(SHORTEST_PATIENCE, Math.min(LONGEST_PATIENCE, this.#timeout * PATIENCE));
    const ms = limit ?? Math.max(1, Math.min(part, this.#until - performance.now()));
    // The connections that a failed heartbeat used may lead to a server that hangs, or was replaced.
    const silence = this.#failure === undefined ? Math.min(SILENCE, ms / 2) : 0;
    const signal = this.#notOpen === CLOSED ? undefined : this.#over.signal;
    const noAnswer = (/** @type {unknown} */ cause) => new NoAnswer(`the session ${this.#id}`, cause);
    return within({ ms }, signal, noAnswer, async (bound) => {
      const { replies } = await ask(this.#client, commands, bound, silence);
      return [...replies];
    });
  }

  #end() {
    clearTimeout(this.#timer);
    this.#over.abort(new Error('the session is over'));
    this.#wakeWaiting();
  }

  #wakeWaiting() {
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }

  #lose() {
    this.#notOpen = LATE;
    this.#end();
    this.#lost.abort(new LockLost(`the session ${this.#id}`, LATE, this.#failure));
    this.#loseSome([...this.#bindings], `its session is not open: ${LATE}`, this.#failure);
  }

  /**
   * @param {Binding[]} bindings
   * @param {string} why
   * @param {unknown} [cause]
   */
  #loseSome(bindings, why, cause) {
    for (const binding of bindings) if (this.#bindings.delete(binding)) binding.lose(why, cause);
  }
}

/** @param {unknown} error */
function isNoSession(error) {
  return error instanceof Error && error.message.startsWith('NOSESSION ');
}

exports.Session = Session;
exports.isNoSession = isNoSession;
