/** Taking locks. */

import { randomUUID } from 'node:crypto';

import { clientOf } from './connection.js';
import { LockLost, NotGranted, persist } from './errors.js';
import { standInLine, unlessAborted } from './line.js';
import { Lock } from './lock.js';

/**
 * @typedef {import('./index.js').DLock} Declared
 * @typedef {import('./index.js').LockOptions} LockOptions
 * @typedef {Required<Omit<LockOptions, 'signal'>> & { signal: AbortSignal | undefined }} Terms
 */

const COMMANDS = { exclusive: 'DLOCK.ACQUIRE', read: 'DLOCK.RLOCK', write: 'DLOCK.WLOCK' };

/** @implements {Declared} */
export class DLock {
  #client;
  #defaults;

  /**
   * @param {import('./index.js').IoredisClient | import('./index.js').NodeRedisClient} client
   * @param {LockOptions} [defaults]
   */
  constructor(client, defaults = {}) {
    this.#client = clientOf(client);
    this.#defaults = defaults;
  }

  /**
   * @param {string} resource
   * @param {LockOptions} [options]
   */
  async acquire(resource, options) {
    const terms = termsOf({ ...this.#defaults, ...options });
    const end = performance.now() + terms.wait;
    do {
      const lock = await this.#ask(resource, terms, end);
      // A lease that began somewhere in the time of waiting is renewed, so that it is known when it ends.
      if (await lock?.confirm()) return /** @type {Lock} */ (lock);
    } while (performance.now() < end);
    throw new NotGranted(resource);
  }

  /**
   * @param {string} resource
   * @param {LockOptions} [options]
   */
  read(resource, options) {
    return this.acquire(resource, { ...options, mode: 'read' });
  }

  /**
   * @param {string} resource
   * @param {LockOptions} [options]
   */
  write(resource, options) {
    return this.acquire(resource, { ...options, mode: 'write' });
  }

  /**
   * @template T
   * @param {string} resource
   * @param {LockOptions} options
   * @param {(signal: AbortSignal, lock: import('./index.js').Lock) => Promise<T>} routine
   * @returns {Promise<T>}
   */
  async using(resource, options, routine) {
    const lock = await this.acquire(resource, options);
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
    if (lost || !held) throw new LockLost(resource, 'before the routine ended', lock.signal.reason);
    return result;
  }

  /**
   * One acquisition: a fresh owner and a REQUEST, so that it may be sent again, and given up without a trace.
   *
   * @param {string} resource
   * @param {Terms} terms
   * @param {number} end
   * @returns {Promise<Lock | null>}
   */
  async #ask(resource, terms, end) {
    const [client, owner] = [this.#client, randomUUID()];
    const key = client.prefix + resource;
    const command = [COMMANDS[terms.mode], key, owner, 'PX', String(terms.lease), 'REQUEST', '1'];
    /** @param {number} token @param {number} sent @param {import('./connection.js').Connection} [own] */
    const granted = (token, sent, own) => new Lock({ client, key, resource, owner, token, lease: terms.lease, sent, own });
    terms.signal?.throwIfAborted();
    try {
      if (!terms.session) {
        // Most locks are free: no connection for those.
        const sent = performance.now();
        const reply = await unlessAborted(persist(() => client.send(command)), terms.signal);
        if (reply !== null) return granted(Number(reply), sent);
        if (terms.wait === 0) return null;
      }
      const grant = await standInLine(client, terms.session ? [...command, 'SESSION'] : command, end, terms.signal);
      if (!grant) return null;
      if (terms.session) return granted(grant.token, grant.sent, grant.connection);
      grant.connection.close();
      return granted(grant.token, grant.sent);
    } catch (error) {
      // It may have been granted nevertheless.
      client.send(['DLOCK.RELEASE', key, owner, 'ALL']).catch(() => {});
      throw error;
    }
  }
}

/**
 * @param {LockOptions} options
 * @returns {Terms}
 */
function termsOf({ lease = 30_000, wait = Infinity, mode = 'exclusive', session = false, signal }) {
  if (!Number.isSafeInteger(lease) || lease < 1) throw new RangeError('lease is a whole number of milliseconds, 1 or more');
  if (!(wait >= 0)) throw new RangeError('wait is a number of milliseconds, 0 or more, or Infinity');
  if (!Object.hasOwn(COMMANDS, mode)) throw new RangeError('mode is exclusive, read or write');
  return { lease, wait, mode, session, signal };
}
