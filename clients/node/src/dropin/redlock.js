'use strict';
/** The interface of redlock 5 for the locks of one server. The module decides: nothing polls, and no script is sent. */

const { EventEmitter } = require('node:events');

const { DLock } = require('../dlock.js');
const { LockLost, NoAnswer, NotGranted } = require('../errors.js');
const { mustBe } = require('../words.js');

/**
 * @typedef {import('./redlock.js').Settings} Settings
 * @typedef {import('./redlock.js').ExecutionStats} Stats
 * @typedef {import('./redlock.js').RedlockAbortSignal} Signal
 * @typedef {(signal: Signal) => Promise<any>} Routine
 */

/** @type {Readonly<Settings>} */
const DEFAULTS = Object.freeze({
  driftFactor: 0.01,
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  automaticExtensionThreshold: 500,
});
/** By how many ms the duration of `using` must be longer than the setting `automaticExtensionThreshold`. */
const LONGER = 100;

// The texts are those of redlock, because programs compare them.
const FAILED = 'The operation was unable to achieve a quorum during its retry window.';
const EXPIRED = 'Cannot extend an already-expired lock.';

class ResourceLockedError extends Error {
  /** @param {string} message */
  constructor(message) {
    super(message);
    this.name = 'ResourceLockedError';
  }
}

class ExecutionError extends Error {
  /**
   * @param {string} message
   * @param {ReadonlyArray<Promise<Stats>>} attempts
   * @param {unknown} [cause]
   */
  constructor(message, attempts, cause) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'ExecutionError';
    this.attempts = attempts;
  }
}

/**
 * @typedef {object} Held
 * @property {import('../hold.js').Lock} hold
 * @property {number} drift
 * @property {boolean} isReplaced `extend` has returned another object for the hold
 */

/** @type {WeakMap<Lock, Held>} */
const held = new WeakMap();

/**
 * @param {Lock} lock
 * @returns {Held}
 */
function heldBy(lock) {
  const known = held.get(lock);
  if (known) return known;
  throw new TypeError('this Lock was not returned by acquire or extend of redis-dlock/redlock. ' +
    'To pass a lock to another program, use handOver and resume of DLock');
}

class Lock {
  /**
   * @param {Redlock} redlock
   * @param {string[]} resources
   * @param {ReadonlyArray<Promise<Stats>>} attempts
   */
  constructor(redlock, resources, attempts) {
    this.redlock = redlock;
    this.resources = resources;
    this.attempts = attempts;
  }

  get value() {
    return heldBy(this).hold.owner;
  }

  get token() {
    return heldBy(this).hold.token;
  }

  /** When the lock expires, by `Date.now()`; 0: it has expired. The hold counts by a clock that only goes forward. */
  get expiration() {
    const { hold, drift, isReplaced } = heldBy(this);
    const left = isReplaced ? 0 : Math.floor(hold.remaining - drift);
    return left > 0 ? Date.now() + left : 0;
  }

  async release() {
    return this.redlock.release(this);
  }

  /** @param {number} duration */
  async extend(duration) {
    return this.redlock.extend(this, duration);
  }
}

class Redlock extends EventEmitter {
  #dlock;

  /**
   * @param {Iterable<any>} clients
   * @param {Partial<Settings>} [settings]
   * @param {object} [scripts]
   */
  constructor(clients, settings = {}, scripts = {}) {
    super();
    this.on('error', () => {}); // without a listener, an event `error` would end the program
    this.clients = new Set(clients);
    const [client, ...others] = this.clients;
    if (!client) throw new Error('Redlock must be instantiated with at least one redis client.');
    if (others.length > 0) {
      throw new Error('redis-dlock/redlock has one client, not several: for a quorum, use the client of a dlock agent');
    }
    if (Object.keys(scripts).length > 0) throw new Error('redis-dlock/redlock has no scripts that could be replaced');
    this.settings = settingsOf(DEFAULTS, settings);
    this.#dlock = new DLock(client);
  }

  async quit() {
    for (const client of this.clients) await (client.quit ?? client.close).call(client);
  }

  /**
   * @param {string[]} resources
   * @param {number} duration
   * @param {Partial<Settings>} [settings]
   */
  async acquire(resources, duration, settings) {
    return this.#acquire(resources, duration, settingsOf(this.settings, settings), false);
  }

  /**
   * @param {Lock} lock
   * @param {Partial<Settings>} [_settings] accepted and ignored: a release is repeated until the server answers or the
   *   time for an answer is over
   */
  async release(lock, _settings) {
    const { hold } = heldBy(lock);
    const attempts = await this.#attempted(lock.resources.length, async () => {
      if (!(await hold.release())) throw new LockLost(hold.resource, 'the server no longer had it');
    });
    return { attempts };
  }

  /**
   * @param {Lock} existing
   * @param {number} duration
   * @param {Partial<Settings>} [settings]
   */
  async extend(existing, duration, settings) {
    checkDuration(duration);
    if (existing.expiration === 0) throw new ExecutionError(EXPIRED, []);
    const before = heldBy(existing);
    const attempts = await this.#attempted(existing.resources.length, () => before.hold.extend(duration));
    before.isReplaced = true;
    const drift = driftOf(settingsOf(this.settings, settings), duration);
    return this.#lock(existing.resources, attempts, before.hold, drift);
  }

  /**
   * @param {string[]} resources
   * @param {number} duration
   * @param {Partial<Settings> | Routine} settings
   * @param {Routine} [routine]
   * @returns {Promise<any>}
   */
  async using(resources, duration, settings, routine) {
    if (typeof settings === 'function') return this.using(resources, duration, {}, settings);
    checkDuration(duration);
    if (typeof routine !== 'function') throw new Error('routine is not a function');
    const all = settingsOf(this.settings, settings);
    if (all.automaticExtensionThreshold > duration - LONGER) {
      throw new Error('A lock `duration` must be at least 100ms greater than the `automaticExtensionThreshold` setting.');
    }
    const lock = await this.#acquire(resources, duration, all, true);
    const signal = this.#signalOf(lock);
    let result;
    try {
      result = await routine(signal);
    } catch (error) {
      await lock.release().catch(() => {}); // if the release fails, the lease ends the lock
      throw error;
    }
    if (signal.aborted) throw signal.error;
    await lock.release().catch((error) => {
      // A release without an answer is no error: the lock was held up to here.
      if (!(error.cause instanceof NoAnswer)) throw error;
    });
    return result;
  }

  /**
   * @param {string[]} resources
   * @param {number} duration
   * @param {Settings} settings
   * @param {boolean} renew
   */
  async #acquire(resources, duration, settings, renew) {
    checkDuration(duration);
    if (!Array.isArray(resources)) throw new TypeError(mustBe('resources', 'an array of names', resources));
    const options = { lease: duration, renew, ...waitOf(settings) };
    const one = resources.length === 1;
    /** @type {any} */
    let hold;
    const attempts = await this.#attempted(resources.length, async () => {
      hold = await (one ? this.#dlock.acquire(resources[0], options) : this.#dlock.acquireAll(resources, options));
    });
    return this.#lock(resources, attempts, hold, driftOf(settings, duration));
  }

  /**
   * @param {string[]} resources
   * @param {ReadonlyArray<Promise<Stats>>} attempts
   * @param {import('../hold.js').Lock} hold
   * @param {number} drift
   */
  #lock(resources, attempts, hold, drift) {
    const lock = new Lock(this, resources, attempts);
    held.set(lock, { hold, drift, isReplaced: false });
    return lock;
  }

  /**
   * Returns a signal that aborts when the lock is lost, with the error that programs of redlock know.
   *
   * @param {Lock} lock
   * @returns {Signal}
   */
  #signalOf(lock) {
    const { signal } = heldBy(lock).hold;
    const told = new AbortController();
    const tell = () => {
      const error = new ExecutionError(EXPIRED, [], signal.reason);
      Object.defineProperty(told.signal, 'error', { value: error, enumerable: true });
      told.abort(error);
    };
    if (signal.aborted) tell();
    else signal.addEventListener('abort', tell, { once: true });
    return /** @type {Signal} */ (told.signal);
  }

  /**
   * Runs an operation, as the one attempt of redlock. A refusal, and an answer that does not come, reject with an
   * `ExecutionError`, as votes against. Other errors, such as a missing module, argument or permission, reject as they
   * are.
   *
   * @param {number} resources how many
   * @param {() => Promise<unknown>} operation
   * @returns {Promise<ReadonlyArray<Promise<Stats>>>}
   */
  async #attempted(resources, operation) {
    const [client] = this.clients;
    const counts = { membershipSize: 1, quorumSize: 1 };
    try {
      await operation();
    } catch (cause) {
      const isRefused = cause instanceof NotGranted || cause instanceof LockLost;
      const against = isRefused ? new ResourceLockedError(refusalOf(resources)) : /** @type {Error} */ (cause);
      if (isRefused) against.cause = cause;
      this.emit('error', against);
      if (!isRefused && !(cause instanceof NoAnswer)) throw cause;
      const stats = { ...counts, votesFor: new Set(), votesAgainst: new Map([[client, against]]) };
      throw new ExecutionError(FAILED, [Promise.resolve(stats)], cause);
    }
    return [Promise.resolve({ ...counts, votesFor: new Set([client]), votesAgainst: new Map() })];
  }
}

/**
 * @param {Settings} settings
 * @param {number} duration
 */
function driftOf({ driftFactor }, duration) {
  return Math.round(driftFactor * duration);
}

/** @param {number} resources */
function refusalOf(resources) {
  return `The operation was applied to: 0 of the ${resources} requested resources.`;
}

/** @param {unknown} duration */
function checkDuration(duration) {
  if (!Number.isInteger(duration)) throw new Error('Duration must be an integer value in milliseconds.');
}

/**
 * @param {Settings} before
 * @param {Partial<Settings>} [settings]
 * @returns {Settings}
 */
function settingsOf(before, settings = {}) {
  const all = { ...before };
  for (const name of /** @type {(keyof Settings)[]} */ (Object.keys(before))) {
    const value = settings[name];
    if (value === undefined) continue;
    if (typeof value !== 'number' || Number.isNaN(value)) throw new TypeError(mustBe(name, 'a number', value));
    Object.assign(all, { [name]: value });
  }
  return all;
}

/**
 * Returns the limits of a wait that is as long as the attempts of redlock take at the longest.
 *
 * @param {Settings} settings
 */
function waitOf({ retryCount, retryDelay, retryJitter }) {
  if (retryCount === -1 || retryCount === Infinity) return { wait: Infinity, outage: Infinity };
  return { wait: Math.max(0, retryCount * (retryDelay + retryJitter)) };
}

// TypeScript's CommonJS asks for this property before it looks for `default`.
Object.defineProperty(exports, '__esModule', { value: true });
// Each name is assigned by itself, so that `import` finds it.
exports.ExecutionError = ExecutionError;
exports.Lock = Lock;
exports.Redlock = Redlock;
exports.ResourceLockedError = ResourceLockedError;
exports.default = Redlock;
