'use strict';
/** A named session: one heartbeat for all locks of a program, on each server that has some of them. */

const { randomUUID } = require('node:crypto');

const { clientOf, isCluster } = require('./wire/clients.js');
const { LockLost, mayRepeat } = require('./errors.js');
const { PAUSE } = require('./limits.js');
const { CLOSED, Heart, LATE, NEW, isNoSession } = require('./heart.js');
const { Bound, pause, unlessAborted } = require('./time.js');

/**
 * @typedef {import('./index.js').Session} Declared
 * @typedef {import('./binding.js').Binding & { heart: Heart }} Binding
 */

/**
 * The lease of each lock is at least this many times the session's timeout. The server renews it when a third has
 * passed, so a hold that lost its session outlives the program's belief in it.
 */
const LEASES = 3;
/** The shortest and the longest timeout on the server, in ms. */
const SHORTEST = 300;
const LONGEST = 3_600_000;

/** @implements {Declared} */
class Session {
  #given;
  #timeout;
  #id = randomUUID();
  #lost = new AbortController();
  /** Why it is not open. @type {string | undefined} */
  #notOpen = NEW;
  /** @type {unknown} */
  #failure;
  #body;
  /** The hearts that are open. Without a cluster: one, as long as the session is open. @type {Set<Heart>} */
  #hearts = new Set();
  /** The hearts for new locks, by the name of the node. @type {Map<string, Heart>} */
  #nodes = new Map();
  /** The hearts that are being opened. @type {Map<string, Promise<Heart>>} */
  #opening = new Map();

  /**
   * @param {import('./index.js').AnyClient} client
   * @param {import('./index.js').SessionOptions} [options]
   */
  constructor(client, { timeout = 10_000, manual = false } = {}) {
    if (!Number.isSafeInteger(timeout) || timeout < SHORTEST || timeout > LONGEST) {
      throw new RangeError('timeout is a whole number of milliseconds, 300 to 3600000');
    }
    if (typeof manual !== 'boolean') throw new TypeError('manual is true or false');
    this.#given = client;
    this.#timeout = timeout;
    this.#body = {
      ...{ client: clientOf(client), timeout, manual, inCluster: isCluster(client) },
      lost: (/** @type {Heart} */ heart, /** @type {unknown} */ cause) => this.#loseHeart(heart, cause),
      idle: (/** @type {Heart} */ heart) => this.#dismiss(heart),
      elsewhere: (/** @type {Heart} */ heart, /** @type {import('./binding.js').Binding} */ binding) =>
        void this.#move(heart, /** @type {Binding} */ (binding)),
    };
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
    if (this.#body.client.isClosed()) throw new Error('the client is closed: connect it before you open a session');
    await this.#begin(this.#body.client.node(this.#id), this.#id);
    this.#notOpen = undefined;
    return this;
  }

  async close() {
    this.#notOpen = CLOSED;
    const hearts = [...this.#hearts];
    this.#hearts.clear();
    this.#nodes.clear();
    await Promise.all(hearts.map((heart) => heart.close()));
  }

  /** Ignores a failure, which would hide how the block ended: the server frees the locks after the timeout. */
  async [Symbol.asyncDispose]() {
    await this.close().catch(() => {});
  }

  beat() {
    for (const heart of this.#hearts) heart.beat();
  }

  // For its locks

  /** @param {unknown} client */
  isOf(client) {
    return this.#given === client;
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
   * The heart on the server that has a key. If there is none, tries to open it until the bound ends.
   *
   * @param {string} key
   * @param {Bound} bound
   * @returns {Promise<Heart>}
   */
  async at(key, bound) {
    for (;;) {
      this.check();
      const node = this.#body.client.node(key);
      const known = this.#body.inCluster ? this.#nodes.get(node) : [...this.#hearts][0];
      if (known && known.reason === undefined) return known;
      try {
        return await unlessAborted(this.#opening.get(node) ?? this.#begin(node, key), bound.signal);
      } catch (error) {
        bound.signal.throwIfAborted();
        if (!mayRepeat(error)) throw error;
        bound.cause = error;
      }
      await pause(PAUSE, bound.signal);
    }
  }

  /**
   * The server that has the key does not know the session. Either it was restarted or replaced, and the next heartbeat
   * opens the session again, or the key is on another node than was known.
   *
   * @param {Heart} heart
   * @param {string} key
   * @param {AbortSignal} signal
   */
  async missing(heart, key, signal) {
    const before = heart.openings;
    await heart.next(signal);
    const node = this.#body.client.node(key);
    const isElsewhere = this.#body.inCluster && heart.openings === before;
    if (isElsewhere && this.#nodes.get(node) === heart) this.#nodes.delete(node);
  }

  // The hearts of the session

  #reason() {
    if (this.#notOpen !== undefined || this.#body.inCluster) return this.#notOpen;
    return [...this.#hearts][0]?.reason;
  }

  /**
   * @param {string} node
   * @param {string} key
   * @returns {Promise<Heart>}
   */
  async #begin(node, key) {
    const heart = new Heart(this.#body, this.#id, key);
    const opening = heart.open().then(() => heart);
    this.#opening.set(node, opening);
    try {
      await opening;
    } finally {
      if (this.#opening.get(node) === opening) this.#opening.delete(node);
    }
    if (this.#notOpen === CLOSED) {
      await heart.close();
      this.check();
    }
    this.#hearts.add(heart);
    this.#nodes.set(node, heart);
    return heart;
  }

  /**
   * Binds a hold on the node that has its key now.
   *
   * @param {Heart} heart that does not know it
   * @param {Binding} binding
   */
  async #move(heart, binding) {
    const { client } = this.#body;
    const node = client.node(binding.key);
    if (this.#nodes.get(node) === heart) this.#nodes.delete(node);
    const bound = new Bound({ ms: heart.untilOf(binding) - performance.now() }, undefined, () => new Error('too late'));
    try {
      const next = await this.at(binding.key, bound);
      const certain = heart.untilOf(binding);
      if (!heart.leave(binding)) return; // released or lost meanwhile
      binding.heart = next;
      next.adopt(binding, certain);
    } catch {
      // The heart tries to bind it again.
    } finally {
      bound.close();
    }
  }

  /** @param {Heart} heart that has had no locks for a while */
  #dismiss(heart) {
    this.#forget(heart);
    heart.close().catch(() => {}); // it ends by itself
  }

  /** @param {Heart} heart */
  #forget(heart) {
    this.#hearts.delete(heart);
    for (const [node, known] of this.#nodes) if (known === heart) this.#nodes.delete(node);
  }

  /**
   * @param {Heart} heart
   * @param {unknown} cause
   */
  #loseHeart(heart, cause) {
    this.#forget(heart);
    if (this.#hearts.size > 0) return; // other nodes of the cluster
    this.#notOpen = LATE;
    this.#failure = cause;
    this.#lost.abort(new LockLost(`the session ${this.#id}`, LATE, cause));
  }
}

exports.Session = Session;
exports.isNoSession = isNoSession;
