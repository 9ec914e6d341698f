'use strict';
/** Acquiring locks. */

const { randomUUID } = require('node:crypto');

const { clientOf } = require('./connection.js');
const { LockLost, NoAnswer, NotGranted, TooFewReplicas, mayRepeat, persist } = require('./errors.js');
const { Lock } = require('./lock.js');
const { checkResource, checkResources, checkRoutine, checkedOptions } = require('./options.js');
const { isCount, termsOf, withoutMode } = require('./options.js');
const { elect, holder, watch } = require('./observe.js');
const { queue } = require('./queue.js');
const { Target } = require('./target.js');
const { unlessAborted, within } = require('./time.js');

/**
 * @typedef {import('./index.js').DLock} Declared
 * @typedef {import('./index.js').LockOptions} LockOptions
 * @typedef {import('./options.js').Terms} Terms
 */

/**
 * @template T
 * @typedef {(signal: AbortSignal, lock: import('./index.js').Lock) => Promise<T> | T} Routine
 */

/** @implements {Declared} */
class DLock {
  #client;
  #defaults;

  /**
   * @param {import('./index.js').AnyClient} client
   * @param {LockOptions} [defaults]
   */
  constructor(client, defaults) {
    this.#client = clientOf(client);
    this.#defaults = checkedOptions(defaults);
    termsOf(this.#defaults);
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
    if (!isCount(limit, 1)) throw new RangeError('limit is a whole number, 1 or more');
    /** @param {import('./index.js').SemaphoreOptions} [options] */
    const acquire = async ({ permits = 1, ...options } = {}) => {
      if (!isCount(permits, 1) || permits > limit) throw new RangeError('permits is a whole number, 1 to the limit');
      const terms = this.#terms(withoutMode(options));
      return this.#acquire(Target.permits(this.#client.prefix + resource, resource, limit, permits), terms);
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

  /** @param {string} resource */
  async holder(resource) {
    checkResource(resource);
    return holder(this.#client, this.#client.prefix + resource);
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

  /** @param {LockOptions} [options] */
  #terms(options) {
    return termsOf({ ...this.#defaults, ...checkedOptions(options) });
  }

  /**
   * @param {Target} target
   * @param {Terms} terms
   */
  async #acquire(target, terms) {
    const end = performance.now() + terms.wait;
    const noAnswer = () => new NoAnswer(target.resource);
    return within(terms.wait + terms.answer, terms.signal, noAnswer, async (signal) => {
      do {
        const lock = await this.#ask(target, terms, end, signal);
        // A lease that began somewhere in the time of waiting is renewed, so that it is known when it ends.
        if (await lock?.confirm(signal)) return /** @type {Lock} */ (lock);
      } while (performance.now() < end);
      throw new NotGranted(target.resource);
    });
  }

  /**
   * One acquisition: a fresh owner and a REQUEST, so that it may be sent again, and given up without a trace.
   *
   * @param {Target} target
   * @param {Terms} terms
   * @param {number} end
   * @param {AbortSignal | undefined} signal
   * @returns {Promise<Lock | null>}
   */
  async #ask(target, terms, end, signal) {
    const [client, owner] = [this.#client, randomUUID()];
    const command = [...target.acquire(owner), 'PX', String(terms.lease), 'REQUEST', '1'];
    if (terms.session) command.push('SESSION');
    signal?.throwIfAborted();
    try {
      if (!terms.session && terms.replicas === 0) {
        // Most locks are free: no connection for those.
        const sent = performance.now();
        const reply = await unlessAborted(this.#first(target, command, terms, signal), signal);
        if (reply) return new Lock({ client, target, owner, token: Number(reply), sent, terms, own: undefined });
        if (terms.wait === 0) return null;
      }
      const grant = await queue({ client, target, owner, command, terms, end, signal });
      if (!grant) return null;
      const { token, sent, connection, acknowledged } = grant;
      if (acknowledged < terms.replicas) {
        connection.close();
        throw new TooFewReplicas(target.resource, acknowledged, terms.replicas);
      }
      if (!terms.session) connection.close();
      return new Lock({ client, target, owner, token, sent, terms, own: terms.session ? connection : undefined });
    } catch (error) {
      // It may have been granted nevertheless.
      const releases = target.releaseAll(owner).map((release) => client.send(release, release[1] ?? ''));
      const released = Promise.all(releases).catch(() => {});
      if (error instanceof TooFewReplicas) await unlessAborted(released, signal);
      throw error;
    }
  }

  /**
   * The command that does not wait, through the client of the program. An outage counts as waiting.
   *
   * @param {Target} target
   * @param {string[]} command
   * @param {Terms} terms
   * @param {AbortSignal | undefined} signal
   */
  async #first(target, command, terms, signal) {
    try {
      return await persist(() => this.#client.send(command, target.keys[0] ?? ''), signal);
    } catch (error) {
      if (!mayRepeat(error)) throw error;
      if (terms.wait === 0) throw new NoAnswer(target.resource, error);
      return null;
    }
  }
}

/**
 * @template T
 * @param {Lock} lock
 * @param {Routine<T>} routine
 * @returns {Promise<T>}
 */
async function keepDuring(lock, routine) {
  lock.keep();
  let result;
  try {
    result = await routine(lock.signal, lock);
  } catch (error) {
    await lock.release().catch(() => {}); // then the lease ends it
    throw error;
  }
  const lost = lock.signal.aborted;
  // Without an answer the lock was held all the same, up to here.
  const held = await lock.release().catch(() => true);
  if (lost || !held) throw new LockLost(lock.resource, 'before the routine ended', lock.signal.reason);
  return result;
}

exports.DLock = DLock;
