'use strict';
/** Locks through the client of a program. */

const { acquire, resume } = require('./acquire.js');
const { clientOf } = require('./wire/clients.js');
const { LockLost, NotGranted } = require('./errors.js');
const { checkResource, checkResources, checkRoutine, checkedOptions } = require('./options.js');
const { isCount, termsOf, warningOf, withoutHold, withoutMode } = require('./options.js');
const { elect, holder, watch } = require('./observe.js');
const { keptFor, onceAtAll, onceInSuccess } = require('./once.js');
const { Target } = require('./target.js');
const { mustBe } = require('./words.js');

/**
 * @typedef {import('./index.js').DLock} Declared
 * @typedef {import('./index.js').LockOptions} LockOptions
 * @typedef {import('./hold.js').Lock} Lock
 * @typedef {import('./options.js').Terms} Terms
 */

/**
 * @template T
 * @typedef {(signal: AbortSignal, lock: import('./index.js').Lock) => Promise<T> | T} Routine
 */

/** @implements {Declared} */
class DLock {
  #given;
  #client;
  #defaults;
  /** The terms without options of the call. @type {Terms | undefined} */
  #usual;

  /**
   * @param {import('./index.js').AnyClient} client
   * @param {LockOptions} [defaults]
   */
  constructor(client, defaults) {
    this.#client = clientOf(client);
    this.#given = client;
    this.#defaults = checkedOptions(defaults);
    this.#usual = this.#terms({});
  }

  /**
   * @param {string} resource
   * @param {LockOptions} [options]
   */
  async acquire(resource, options) {
    checkResource(resource);
    const terms = this.#terms(options);
    return this.#acquire(Target.one(this.#client.prefix + resource, resource, terms.mode), terms);
  }

  /**
   * @param {string} resource
   * @param {LockOptions} [options]
   */
  async tryAcquire(resource, options) {
    try {
      return await this.acquire(resource, { wait: 0, ...checkedOptions(options) });
    } catch (error) {
      if (error instanceof NotGranted) return null;
      throw error;
    }
  }

  /**
   * @param {string} resource
   * @param {LockOptions} [options]
   */
  async read(resource, options) {
    return this.acquire(resource, { ...checkedOptions(options), mode: 'read' });
  }

  /**
   * @param {string} resource
   * @param {LockOptions} [options]
   */
  async write(resource, options) {
    return this.acquire(resource, { ...checkedOptions(options), mode: 'write' });
  }

  /**
   * @template T
   * @param {string} resource
   * @param {LockOptions | Routine<T>} options
   * @param {Routine<T>} [routine]
   * @returns {Promise<T>}
   */
  async using(resource, options, routine) {
    if (typeof options === 'function' && routine === undefined) return this.using(resource, {}, options);
    checkRoutine(routine);
    const lock = await this.acquire(resource, /** @type {LockOptions} */ (options));
    return keepDuring(lock, /** @type {Routine<T>} */ (routine));
  }

  /**
   * @param {string[]} resources
   * @param {LockOptions} [options]
   */
  async acquireAll(resources, options) {
    checkResources(resources);
    const terms = this.#terms(withoutMode(options));
    const keys = resources.map((resource) => this.#client.prefix + resource);
    return this.#acquire(Target.all(keys, resources.join(' ')), terms);
  }

  /**
   * @template T
   * @param {string[]} resources
   * @param {LockOptions | Routine<T>} options
   * @param {Routine<T>} [routine]
   * @returns {Promise<T>}
   */
  async usingAll(resources, options, routine) {
    if (typeof options === 'function' && routine === undefined) return this.usingAll(resources, {}, options);
    checkRoutine(routine);
    const lock = await this.acquireAll(resources, /** @type {LockOptions} */ (options));
    return keepDuring(lock, /** @type {Routine<T>} */ (routine));
  }

  /**
   * @param {string} resource
   * @param {number} limit
   * @returns {import('./index.js').Semaphore}
   */
  semaphore(resource, limit) {
    checkResource(resource);
    if (!isCount(limit, 1)) throw new RangeError(mustBe('limit', 'a whole number, 1 or more', limit));
    /** @param {import('./index.js').SemaphoreOptions} [options] */
    const acquire = async ({ permits = 1, slot = false, ...options } = {}) => {
      if (!isCount(permits, 1) || permits > limit) {
        throw new RangeError(mustBe('permits', `a whole number from 1 to the limit, which is ${limit}`, permits));
      }
      if (typeof slot !== 'boolean') throw new TypeError(mustBe('slot', 'true or false', slot));
      if (slot && permits > 1) throw new RangeError(mustBe('permits', '1 with slot: true', permits));
      const terms = this.#terms(withoutMode(options));
      const key = this.#client.prefix + resource;
      const permitted = () => Target.permits(key, resource, limit, permits);
      return this.#acquire(slot ? Target.slot(key, resource, limit) : permitted(), terms);
    };
    /**
     * @template T
     * @param {import('./index.js').SemaphoreOptions | Routine<T>} options
     * @param {Routine<T>} [routine]
     * @returns {Promise<T>}
     */
    const using = async (options, routine) => {
      if (typeof options === 'function' && routine === undefined) return using({}, options);
      checkRoutine(routine);
      const lock = await acquire(/** @type {import('./index.js').SemaphoreOptions} */ (options));
      return keepDuring(lock, /** @type {Routine<T>} */ (routine));
    };
    return { resource, limit, acquire, using };
  }

  /**
   * @template T
   * @param {string} resource
   * @param {number} period
   * @param {import('./index.js').OnceOptions | Routine<T>} options
   * @param {Routine<T>} [routine]
   * @returns {Promise<boolean>}
   */
  async once(resource, period, options, routine) {
    if (typeof options === 'function' && routine === undefined) return this.once(resource, period, {}, options);
    checkRoutine(routine);
    const { retryFailed = false, ...given } = /** @type {import('./index.js').OnceOptions} */ (options ?? {});
    if (typeof retryFailed !== 'boolean') throw new TypeError(mustBe('retryFailed', 'true or false', retryFailed));
    const stays = keptFor(period);
    const { lease } = this.#terms({ session: false, ...withoutHold(given), atLeast: stays });
    const acquire = (/** @type {LockOptions} */ how) =>
      this.acquire(resource, { wait: 0, session: false, ...given, mode: 'exclusive', atLeast: 0, ...how });
    const run = /** @type {Routine<T>} */ (routine);
    if (retryFailed) return onceInSuccess(acquire, stays, lease, (lock) => runUnder(lock, run));
    return onceAtAll(acquire, stays, (lock) => keepDuring(lock, run));
  }

  /**
   * @param {string} resource
   * @param {string} owner
   * @param {number} token
   * @param {LockOptions} [options]
   */
  async resume(resource, owner, token, options) {
    checkResource(resource);
    if (typeof owner !== 'string' || owner === '') {
      throw new TypeError(mustBe('owner', 'the owner of the lock, a string that is not empty', owner));
    }
    if (!isCount(token, 1)) throw new TypeError(mustBe('token', 'the token of the lock, a whole number', token));
    const terms = this.#terms(options);
    if (terms.session || terms.named) throw new TypeError('a lock that is resumed must have a lease, not a session');
    return resume(this.#client, Target.one(this.#client.prefix + resource, resource, terms.mode), terms, { owner, token });
  }

  /** @param {string} resource */
  async holder(resource) {
    checkResource(resource);
    return holder(this.#client, this.#client.prefix + resource, this.#terms({}).answer);
  }

  /**
   * @param {string} resource
   * @param {{ signal?: AbortSignal }} [options]
   */
  watch(resource, options) {
    checkResource(resource);
    return watch(this.#client, this.#client.prefix + resource, options?.signal);
  }

  /**
   * @param {string} resource
   * @param {import('./index.js').ElectionOptions} options
   */
  async elect(resource, options) {
    checkResource(resource);
    checkRoutine(options?.onStarted);
    return elect(this, resource, options);
  }

  /**
   * @param {LockOptions} [options]
   * @returns {Terms}
   */
  #terms(options) {
    if (options === undefined && this.#usual) return this.#usual;
    const all = { ...this.#defaults, ...checkedOptions(options) };
    const terms = termsOf(all);
    warnOnce(warningOf(all.lease));
    if (terms.named && !terms.named.isOf(this.#given)) throw new TypeError('session must be of the same client as the lock, not of another client');
    if (this.#client.hidesReconnects && (terms.session || terms.replicas > 0)) {
      throw new TypeError('session: true and replicas need a connection that tells of its end, as ioredis and node-redis do');
    }
    return terms;
  }

  /**
   * @param {Target} target
   * @param {Terms} terms
   */
  #acquire(target, terms) {
    if (this.#client.isClosed()) throw new Error('the client is closed: connect it before you acquire locks');
    terms.signal?.throwIfAborted();
    return acquire(this.#client, target, terms);
  }
}

let hasWarned = false;

/** @param {string | undefined} warning */
function warnOnce(warning) {
  if (warning === undefined || hasWarned) return;
  hasWarned = true;
  process.emitWarning(warning, { type: 'DLockWarning', code: 'DLOCK_SHORT_LEASE' });
}

/**
 * @template T
 * @param {Lock} lock
 * @param {Routine<T>} routine
 * @returns {Promise<T>}
 */
async function keepDuring(lock, routine) {
  let result;
  try {
    result = await runUnder(lock, routine);
  } catch (error) {
    await lock.release().catch(() => {}); // the lease ends a lock that is not released
    throw error;
  }
  // A release without an answer is no loss: the lock was held up to here.
  if (!(await lock.release().catch(() => true))) throw lostBefore(lock);
  return result;
}

/**
 * @template T
 * @param {Lock} lock kept meanwhile
 * @param {Routine<T>} routine
 * @returns {Promise<T>}
 */
async function runUnder(lock, routine) {
  lock.keep();
  const result = await routine(lock.signal, lock);
  if (lock.signal.aborted) throw lostBefore(lock);
  return result;
}

/** @param {Lock} lock */
function lostBefore({ resource, signal }) {
  return new LockLost(resource, 'before the routine ended', signal.reason);
}

exports.DLock = DLock;
