'use strict';
/** The classes of redis-semaphore over the locks of one server, whose module decides: nothing polls, no script is sent. */

const { randomUUID } = require('node:crypto');

const { resume } = require('../acquire.js');
const { DLock } = require('../dlock.js');
const { LockLost, NoAnswer, NotGranted } = require('../errors.js');
const { fieldsOf } = require('../info.js');
const { termsOf } = require('../options.js');
const { checkLabel, labelOf } = require('../owners.js');
const { Target } = require('../target.js');
const { timer, within } = require('../time.js');
const { ask } = require('../wire/ask.js');
const { clientOf } = require('../wire/clients.js');

/**
 * @typedef {import('./semaphore.js').LockOptions} LockOptions
 * @typedef {import('../hold.js').Lock} Hold
 * @typedef {import('../wire/clients.js').Client} Client
 *
 * @typedef {object} Kind what is locked
 * @property {string} name for messages
 * @property {string} key
 * @property {(dlock: DLock, options: import('../index.js').LockOptions) => Promise<any>} acquire
 * @property {(key: string) => Target} target for a hold that another program has acquired
 * @property {boolean} isOneHolder the object has its permits once, however often it acquires them
 */

const defaultTimeoutOptions = {
  lockTimeout: 10_000,
  acquireTimeout: 10_000,
  acquireAttemptsLimit: Number.POSITIVE_INFINITY,
  retryInterval: 10,
};
/** The part of the lock's timeout after which redis-semaphore refreshes it. */
const REFRESHED = 0.8;
const NAMES = [
  ...Object.keys(defaultTimeoutOptions),
  ...['refreshInterval', 'onLockLost', 'identifier', 'acquiredExternally', 'externallyAcquiredIdentifier', 'identifierSuffix'],
];
/** How often `keep` renews within a lease. */
const OFTEN = 3;
/** The most holds that DLOCK.INFO shows. */
const MOST = '1000';

class LostLockError extends Error {}
class TimeoutError extends Error {}

/** The parts that all locks of one client share. @type {WeakMap<object, { dlock: DLock, wire: Client }>} */
const known = new WeakMap();

/** @param {any} client */
function lockerOf(client) {
  const locker = known.get(client) ?? { dlock: new DLock(client), wire: clientOf(client) };
  known.set(client, locker);
  return locker;
}

class Lock {
  #locker;
  #kind;
  #options;
  #identifier;
  /** The lock was acquired by another program, under the same identifier. */
  #isExternal;
  /** @type {Hold | undefined} */
  #hold;
  #isRefreshed = false;
  /** @type {NodeJS.Timeout | undefined} */
  #next;

  /**
   * @param {any} client
   * @param {Kind} kind
   * @param {LockOptions} [options]
   */
  constructor(client, kind, options = {}) {
    if (!client) throw new Error('"client" is required');
    this.#options = optionsOf(options);
    const { identifier, externallyAcquiredIdentifier, identifierSuffix } = options;
    const suffix = identifierSuffix ? `-${identifierSuffix}` : '';
    this.#identifier = identifier ?? externallyAcquiredIdentifier ?? randomUUID() + suffix;
    checkLabel(this.#identifier);
    this.#isExternal = Boolean(options.acquiredExternally || externallyAcquiredIdentifier);
    this.#locker = lockerOf(client);
    this.#kind = kind;
  }

  /** The beginning of each hold's owner. */
  get identifier() {
    return this.#identifier;
  }

  get isAcquired() {
    return this.#hold !== undefined && this.#hold.remaining > 0;
  }

  get token() {
    return this.#hold?.token;
  }

  /** @param {AbortSignal} [abortSignal] */
  async acquire(abortSignal) {
    if (await this.tryAcquire(abortSignal)) return;
    throw new TimeoutError(`Acquire ${this.#kind.name} ${this.#kind.key} timeout`);
  }

  /** @param {AbortSignal} [abortSignal] */
  async tryAcquire(abortSignal) {
    if (this.#kind.isOneHolder && (await this.#isExtended())) return true;
    const hold = this.#isExternal ? await this.#resumed() : await this.#granted(abortSignal);
    if (!hold) return false;
    if (this.#kind.isOneHolder && this.isAcquired) {
      // Two calls at a time: the first has taken the permits.
      if (hold.token !== this.token) await hold.release();
      return true;
    }
    this.#isExternal = false;
    this.#have(hold);
    return true;
  }

  /** Does nothing if the lock is lost. */
  async release() {
    const hold = this.#hold ?? (this.#isExternal ? await this.#resumed() : undefined);
    this.stopRefresh();
    this.#hold = undefined;
    this.#isExternal = false;
    await hold?.release();
  }

  /** Leaves the lock to its timeout from now on. */
  stopRefresh() {
    this.#isRefreshed = false;
    clearTimeout(this.#next);
    this.#hold?.stopKeeping();
  }

  /** @param {Hold} hold */
  #have(hold) {
    this.#hold = hold;
    this.#isRefreshed = this.#options.refreshInterval > 0;
    if (!this.#isRefreshed) return;
    hold.keep();
    if (this.#options.refreshInterval < hold.remaining / OFTEN) this.#refresh(hold);
    hold.signal.addEventListener('abort', () => {
      if (this.#hold !== hold || !this.#isRefreshed) return;
      const { name, key } = this.#kind;
      const lost = new LostLockError(`Lost ${name} for key ${key}`, { cause: hold.signal.reason });
      // An error of the callback is an unhandled rejection, as with redis-semaphore.
      void Promise.resolve().then(() => this.#options.onLockLost.call(/** @type {any} */ (this), lost));
    });
  }

  /**
   * Renews more often than `keep` does.
   *
   * @param {Hold} hold
   */
  #refresh(hold) {
    this.#next = timer(async () => {
      await hold.extend().catch(() => {}); // `keep` tells of a loss
      if (this.#hold === hold && this.isAcquired && this.#isRefreshed) this.#refresh(hold);
    }, this.#options.refreshInterval);
  }

  async #isExtended() {
    try {
      await this.#hold?.extend();
      return this.isAcquired;
    } catch (error) {
      if (error instanceof LockLost) return false;
      throw error;
    }
  }

  /**
   * @param {AbortSignal | undefined} signal
   * @returns {Promise<Hold | undefined>} undefined: not in time
   */
  async #granted(signal) {
    const { lockTimeout: lease, wait } = this.#options;
    try {
      const options = { lease, wait, owner: this.#identifier, ...(signal && { signal }) };
      return await this.#kind.acquire(this.#locker.dlock, options);
    } catch (error) {
      if (error instanceof NotGranted) return undefined;
      throw error;
    }
  }

  /** @returns {Promise<Hold | undefined>} undefined: the server has no hold under the identifier */
  async #resumed() {
    const { wire } = this.#locker;
    const target = this.#kind.target(wire.prefix + this.#kind.key);
    const terms = termsOf({ lease: this.#options.lockTimeout });
    const found = await holdOf(wire, target, this.#identifier, terms.answer);
    if (!found) return undefined;
    try {
      return await resume(wire, target, terms, found);
    } catch (error) {
      if (error instanceof LockLost) return undefined;
      throw error;
    }
  }
}

/**
 * The hold whose owner begins with an identifier.
 *
 * @param {Client} client
 * @param {Target} target
 * @param {string} identifier
 * @param {number} ms
 */
async function holdOf(client, target, identifier, ms) {
  const question = ['DLOCK.INFO', target.keys[0] ?? '', 'FULL', 'COUNT', MOST];
  const noAnswer = (/** @type {unknown} */ cause) => new NoAnswer(target.resource, cause);
  const { replies } = await within({ ms }, undefined, noAnswer, (bound) => ask(client, [question], bound));
  const holds = /** @type {unknown[]} */ (fieldsOf(replies[0]).get('holds') ?? []).map(fieldsOf);
  const found = holds.filter((hold) => labelOf(String(hold.get('owner'))) === identifier);
  if (found.length > 1) throw new Error(`${found.length} holds of ${target.resource} have the identifier ${identifier}`);
  const [hold] = found;
  return hold && { owner: String(hold.get('owner')), token: Number(hold.get('token')) };
}

/** @param {LockOptions} options */
function optionsOf(options) {
  for (const name of Object.keys(options)) if (!NAMES.includes(name)) throw new TypeError(`unknown option ${name}`);
  const { identifier, acquiredExternally, externallyAcquiredIdentifier } = options;
  if (identifier !== undefined && (typeof identifier !== 'string' || identifier === '')) {
    throw new Error('identifier must be not empty random string');
  }
  if (acquiredExternally && !identifier) throw new Error('acquiredExternally needs an identifier');
  if (externallyAcquiredIdentifier && (identifier || acquiredExternally)) {
    throw new Error('externallyAcquiredIdentifier is identifier with acquiredExternally: give one of them');
  }
  const all = { ...defaultTimeoutOptions, ...given(options) };
  const { lockTimeout, acquireTimeout, acquireAttemptsLimit, retryInterval } = all;
  const attempts = acquireAttemptsLimit === Infinity ? Infinity : (acquireAttemptsLimit - 1) * retryInterval;
  return {
    lockTimeout,
    wait: Math.max(0, Math.min(acquireTimeout, attempts)),
    refreshInterval: options.refreshInterval ?? lockTimeout * REFRESHED,
    onLockLost: options.onLockLost ?? rethrow,
  };
}

/** @param {LockOptions} options */
function given(options) {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}

/**
 * @param {LostLockError} error
 * @returns {never}
 */
function rethrow(error) {
  throw error;
}

/** @param {unknown} key */
function checkKey(key) {
  if (!key) throw new Error('"key" is required');
  if (typeof key !== 'string') throw new Error('"key" must be a string');
  return key;
}

/**
 * @param {unknown} number
 * @param {string} name
 */
function checkNumber(number, name) {
  if (!number) throw new Error(`"${name}" is required`);
  if (typeof number !== 'number') throw new Error(`"${name}" must be a number`);
  return number;
}

/**
 * Returns the only client given to a class that redis-semaphore has for several servers.
 *
 * @param {unknown} clients
 */
function onlyOf(clients) {
  if (!Array.isArray(clients)) throw new Error('"clients" array is required');
  if (clients.length === 1) return clients[0];
  throw new Error('redis-dlock/semaphore has one client, not several: for a quorum, use the client of a dlock agent');
}

/**
 * @param {string} name
 * @param {unknown} given
 * @returns {Kind}
 */
function exclusive(name, given) {
  const key = `mutex:${checkKey(given)}`;
  return {
    ...{ name, key, isOneHolder: false },
    acquire: (dlock, options) => dlock.acquire(key, options),
    target: (prefixed) => Target.one(prefixed, key, 'exclusive'),
  };
}

/**
 * @param {string} name
 * @param {unknown} given
 * @param {unknown} most
 * @param {unknown} taken
 * @returns {Kind}
 */
function counted(name, given, most, taken) {
  const key = `semaphore:${checkKey(given)}`;
  const [limit, permits] = [checkNumber(most, 'limit'), checkNumber(taken, 'permits')];
  return {
    ...{ name, key, isOneHolder: true },
    acquire: (dlock, options) => dlock.semaphore(key, limit).acquire({ permits, ...options }),
    target: (prefixed) => Target.permits(prefixed, key, limit, permits),
  };
}

class Mutex extends Lock {
  /**
   * @param {any} client
   * @param {string} key
   * @param {LockOptions} [options]
   */
  constructor(client, key, options) {
    super(client, exclusive('mutex', key), options);
  }
}

class Semaphore extends Lock {
  /**
   * @param {any} client
   * @param {string} key
   * @param {number} limit
   * @param {LockOptions} [options]
   */
  constructor(client, key, limit, options) {
    super(client, counted('semaphore', key, limit, 1), options);
  }
}

class MultiSemaphore extends Lock {
  /**
   * @param {any} client
   * @param {string} key
   * @param {number} limit
   * @param {number} permits
   * @param {LockOptions} [options]
   */
  constructor(client, key, limit, permits, options) {
    super(client, counted('multi-semaphore', key, limit, permits), options);
  }
}

class RedlockMutex extends Lock {
  /**
   * @param {any[]} clients
   * @param {string} key
   * @param {LockOptions} [options]
   */
  constructor(clients, key, options) {
    super(onlyOf(clients), exclusive('redlock-mutex', key), options);
  }
}

class RedlockSemaphore extends Lock {
  /**
   * @param {any[]} clients
   * @param {string} key
   * @param {number} limit
   * @param {LockOptions} [options]
   */
  constructor(clients, key, limit, options) {
    super(onlyOf(clients), counted('redlock-semaphore', key, limit, 1), options);
  }
}

class RedlockMultiSemaphore extends Lock {
  /**
   * @param {any[]} clients
   * @param {string} key
   * @param {number} limit
   * @param {number} permits
   * @param {LockOptions} [options]
   */
  constructor(clients, key, limit, permits, options) {
    super(onlyOf(clients), counted('redlock-multi-semaphore', key, limit, permits), options);
  }
}

module.exports = {
  ...{ LostLockError, TimeoutError, defaultTimeoutOptions },
  ...{ Mutex, Semaphore, MultiSemaphore, RedlockMutex, RedlockSemaphore, RedlockMultiSemaphore },
};
