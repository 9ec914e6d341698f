'use strict';
/** A named session of a program. A `Heart` keeps it alive on one server; in a cluster, on each node that has locks. */

const { randomUUID } = require('node:crypto');

const { clientOf, isCluster } = require('./wire/clients.js');
const { LockLost, mayRepeat } = require('./errors.js');
const { PAUSE } = require('./limits.js');
const { CLOSED, Heart, LATE, NEW, isNoSession } = require('./heart.js');
const { Bound, pause, unlessAborted } = require('./time.js');
const { mustBe } = require('./words.js');

/**
 * @typedef {import('./index.js').Session} Declared
 * @typedef {import('./binding.js').Binding & { heart: Heart }} Binding
 */

/**
 * The lease of each lock is at least this many times the session's timeout. The server renews a lease when a third has
 * passed, so the hold of a lost session lasts for two more timeouts, and the program counts on one at most.
 */
const LEASES = 3;
/** The shortest and the longest timeout that the server takes, in ms. */
const SHORTEST = 300;
const LONGEST = 3_600_000;

/** @implements {Declared} */
class Session {
  #given;
  #timeout;
  #id = randomUUID();
  #lost = new AbortController();
  /** Why the session is not open. @type {string | undefined} */
  #notOpen = NEW;
  /** Why the last heartbeat failed before the session was lost. @type {unknown} */
  #failure;
  /** The things that all hearts share: see `Body` in heart.js. */
  #body;
  /** The hearts that are open. Without a cluster: one, as long as the session is open. @type {Set<Heart>} */
  #hearts = new Set();
  /** The hearts for new locks, by the name of the node. @type {Map<string, Heart>} */
  #nodes = new Map();
  /** The hearts that are being opened, by the name of the node. @type {Map<string, Promise<Heart>>} */
  #opening = new Map();

  /**
   * @param {import('./index.js').AnyClient} client
   * @param {import('./index.js').SessionOptions} [options]
   */
  constructor(client, { timeout = 10_000, manual = false } = {}) {
    if (!Number.isSafeInteger(timeout) || timeout < SHORTEST || timeout > LONGEST) {
      throw new RangeError(mustBe('timeout', `a whole number of milliseconds, ${SHORTEST} to ${LONGEST}`, timeout));
    }
    if (typeof manual !== 'boolean') throw new TypeError(mustBe('manual', 'true or false', manual));
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
    // In a cluster, the id chooses the first node, as if it were a key.
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

  /** Throws if the session is not open. */
  check() {
    const why = this.#reason();
    if (why !== undefined) throw new Error(`the session is not open: ${why}`, { cause: this.#failure });
  }

  /**
   * Lengthens the lease of a lock if it is too short for the session.
   *
   * @param {number} lease
   */
  leaseOf(lease) {
    return Math.max(lease, LEASES * this.#timeout);
  }

  /**
   * The heart on the server that has a key. If there is none, tries to open one until the bound ends.
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
   * Waits for the next heartbeat, after the server that has the key has said that it does not know the session. If that
   * server was restarted or replaced, the heartbeat opens the session again. Otherwise, the key has moved to another
   * node of the cluster, and `at` opens a heart there.
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

  /** Why the session is not open. Outside a cluster, a heart that is late counts before its timer has noticed. */
  #reason() {
    if (this.#notOpen !== undefined || this.#body.inCluster) return this.#notOpen;
    return [...this.#hearts][0]?.reason;
  }

  /**
   * @param {string} node
   * @param {string} key one that the node has
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
      this.check(); // throws
    }
    this.#hearts.add(heart);
    this.#nodes.set(node, heart);
    return heart;
  }

  /**
   * Binds a hold on the node that has its key now.
   *
   * @param {Heart} heart whose session that node does not know
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
      // The heart tries again with its next heartbeat.
    } finally {
      bound.close();
    }
  }

  /** @param {Heart} heart that has had no locks for a while */
  #dismiss(heart) {
    this.#forget(heart);
    heart.close().catch(() => {}); // without heartbeats, the server ends the session by itself
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
    if (this.#hearts.size > 0) return; // the session is open on other nodes of the cluster
    this.#notOpen = LATE;
    this.#failure = cause;
    this.#lost.abort(new LockLost(`the session ${this.#id}`, LATE, cause));
  }
}

exports.Session = Session;
exports.isNoSession = isNoSession;
