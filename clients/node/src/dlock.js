'use strict';
/** Acquiring locks. */

const { ask, orNever, soon } = require('./ask.js');
const { AFTERWARDS, Attempts } = require('./attempts.js');
const { clientOf, inDatabase } = require('./clients.js');
const { LockLost, NoAnswer, NotGranted, TooFewReplicas, Unlike } = require('./errors.js');
const { Lock } = require('./lock.js');
const { checkResource, checkResources, checkRoutine, checkedOptions } = require('./options.js');
const { firstLease, isCount, termsOf, withoutHold, withoutMode } = require('./options.js');
const { elect, holder, watch } = require('./observe.js');
const { newOwner } = require('./owners.js');
const { keptFor, onceAtAll, onceInSuccess } = require('./once.js');
const { askAgain, grantedBy, waitOn } = require('./queue.js');
const { isNoSession } = require('./session.js');
const { Target } = require('./target.js');
const { Bound, timer, unlessAborted, within } = require('./time.js');

/**
 * @typedef {import('./index.js').DLock} Declared
 * @typedef {import('./index.js').LockOptions} LockOptions
 * @typedef {import('./options.js').Terms} Terms
 * @typedef {import('./queue.js').Grant} Grant
 * @typedef {import('./queue.js').Request} Request
 */

/** How long after its end a wait expects the last answer of the server, in ms. */
const GRACE = 150;

/** How late the server may see that a connection has ended: on the same machine, and at most, in ms. */
const SEES_AN_END = [20, 1000];

/**
 * @template T
 * @typedef {(signal: AbortSignal, lock: import('./index.js').Lock) => Promise<T> | T} Routine
 */

/** @implements {Declared} */
class DLock {
  #given;
  #client;
  #defaults;

  /**
   * @param {import('./index.js').AnyClient} client
   * @param {LockOptions} [defaults]
   */
  constructor(client, defaults) {
    this.#client = clientOf(client);
    this.#given = client;
    this.#defaults = checkedOptions(defaults);
    this.#terms();
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
    if (!isCount(limit, 1)) throw new RangeError('limit is a whole number, 1 or more');
    /** @param {import('./index.js').SemaphoreOptions} [options] */
    const acquire = async ({ permits = 1, slot = false, ...options } = {}) => {
      if (!isCount(permits, 1) || permits > limit) throw new RangeError('permits is a whole number, 1 to the limit');
      if (typeof slot !== 'boolean') throw new TypeError('slot is true or false');
      if (slot && permits > 1) throw new RangeError('one permit has a slot, not several');
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
    if (typeof retryFailed !== 'boolean') throw new TypeError('retryFailed is true or false');
    const stays = keptFor(period);
    const { lease } = this.#terms({ session: false, ...withoutHold(given), atLeast: stays });
    const acquire = (/** @type {LockOptions} */ how) =>
      this.acquire(resource, { wait: 0, session: false, ...given, mode: 'exclusive', atLeast: 0, ...how });
    const run = /** @type {Routine<T>} */ (routine);
    if (retryFailed) return onceInSuccess(acquire, stays, lease, (lock) => runUnder(lock, run));
    return onceAtAll(acquire, stays, (lock) => keepDuring(lock, run));
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

  /** @param {LockOptions} [options] */
  #terms(options) {
    const terms = termsOf({ ...this.#defaults, ...checkedOptions(options) });
    if (terms.named && !terms.named.isOf(this.#given)) throw new TypeError('session is of another client');
    return terms;
  }

  /**
   * @param {Target} target
   * @param {Terms} terms
   */
  async #acquire(target, terms) {
    if (this.#client.isClosed()) throw new Error('the client is closed: connect it before you acquire locks');
    const { wait, answer, outage, signal } = terms;
    signal?.throwIfAborted();
    const began = performance.now();
    const limits = wait === Infinity ? { silence: outage } : { ms: (wait || answer) + GRACE };
    const times = { end: began + wait, until: began + (wait || answer) };
    const noAnswer = (/** @type {unknown} */ cause) => new NoAnswer(target.resource, cause);
    const acquire = async (/** @type {import('./time.js').Bound} */ bound) => {
      do {
        const lock = await this.#requestInSession(target, terms, times, bound);
        // A lease that began somewhere in the time of waiting is renewed, so that it is known when it ends.
        if (await lock?.confirm(bound)) return /** @type {Lock} */ (lock);
      } while (performance.now() < times.end);
      throw new NotGranted(target.resource);
    };
    return within(limits, signal, noAnswer, acquire, (lock) => void lock.free().catch(() => {}));
  }

  /**
   * The same as `#request`. If the server does not know the session, it is opened again.
   *
   * @param {Target} target
   * @param {Terms} terms
   * @param {{ end: number, until: number }} times
   * @param {import('./time.js').Bound} bound
   * @returns {Promise<Lock | null>}
   */
  async #requestInSession(target, terms, times, bound) {
    const { named } = terms;
    if (!named) return this.#request(target, terms, times, bound);
    const [key = ''] = target.keys;
    for (;;) {
      const heart = await named.at(key, bound);
      try {
        return await heart.during(() => this.#request(target, terms, times, bound, heart));
      } catch (error) {
        if (!isNoSession(error)) throw error;
        bound.cause = error;
      }
      await named.missing(heart, key, bound.signal);
    }
  }

  /**
   * One acquisition: a fresh owner and a REQUEST, so that it may be sent again, and given up without a trace.
   *
   * @param {Target} target
   * @param {Terms} terms
   * @param {{ end: number, until: number }} times
   * @param {import('./time.js').Bound} bound
   * @param {import('./heart.js').Heart} [heart] of its named session
   * @returns {Promise<Lock | null>}
   */
  async #request(target, terms, times, bound, heart) {
    const owner = newOwner(terms.owner);
    void this.#client.learn(); // its reply comes before that of the command
    const selected = this.#client.database();
    const inThis = () => inDatabase(this.#client, selected ?? this.#client.database());
    const command = [...target.acquire(owner), 'PX', String(firstLease(terms)), 'REQUEST', '1'];
    if (terms.maxHold !== Infinity) command.push('MAXHOLD', String(terms.maxHold));
    if (terms.session) command.push('SESSION');
    const named = heart && { heart, id: heart.id, openings: heart.openings };
    if (named) command.push('SESSIONID', named.id);
    const attempts = new Attempts(this.#client, target.keys[0] ?? '', bound);
    try {
      const grant = await grantOf({ client: this.#client, target, owner, command, terms, ...times, bound, heart }, attempts);
      bound.signal.throwIfAborted();
      if (!grant) {
        attempts.end();
        return null;
      }
      const { token, slot, sent, connection, acknowledged } = grant;
      if (acknowledged < terms.replicas) throw new TooFewReplicas(target.resource, acknowledged, terms.replicas);
      const client = connection ? inDatabase(this.#client, connection.database) : inThis();
      const own = terms.session ? connection : undefined;
      if (own) attempts.give(own);
      const late = own ? attempts.giveRest() : [];
      const lock = new Lock({ client, target, owner, token, slot, sent, terms, own, late, named });
      if (!grant.isLate) attempts.end();
      if (terms.renew) lock.keep();
      return lock;
    } catch (error) {
      // It may have been granted nevertheless.
      const [client, undone] = [inThis(), target.releaseAll(owner)];
      attempts.end(undone);
      const released = cleanUp(client, undone, heart);
      if (attempts.hasLeft) void cleanUpAgain(client, undone, heart, released);
      if (error instanceof TooFewReplicas) await unlessAborted(released, bound.signal);
      throw error;
    }
  }
}

/**
 * @param {Request} request
 * @param {import('./attempts.js').Attempts} attempts
 * @returns {Promise<Grant | null>}
 */
async function grantOf(request, attempts) {
  const { client, target, command, terms, bound } = request;
  const needsOwn = terms.session || terms.replicas > 0;
  const own = () =>
    attempts.run((connection) => waitOn(request, connection)).catch((error) => {
      if (error instanceof Unlike && !needsOwn) return askAgain(request);
      throw error;
    });
  if (needsOwn) return unlessAborted(own(), bound.signal);
  // Most locks are free: no connection for those.
  const sent = performance.now();
  const shared = client.send(command, target.keys[0] ?? '').then((reply) => {
    const granted = grantedBy(reply);
    return granted && { ...granted, sent, acknowledged: 0 };
  });
  const first = await soon(shared, bound);
  if (first) return first;
  if (first === null) return terms.wait === 0 ? null : unlessAborted(own(), bound.signal);
  // Only a wait goes on after it was refused.
  const late = shared.then((grant) => (grant || terms.wait === 0 ? grant : new Promise(() => {})));
  attempts.isSuspect = true;
  const other = own();
  const grant = await unlessAborted(Promise.race([other, orNever(late)]), bound.signal);
  for (const each of [other, shared]) each.then((extra) => extra && dropped(request, extra, grant), () => {});
  if (grant?.connection) return grant;
  attempts.endLater();
  return grant && { ...grant, isLate: true };
}

/**
 * Releases what was granted to a repeat after the grant that counts was over.
 *
 * @param {Request} request
 * @param {Grant} extra
 * @param {Grant | null} counted
 */
function dropped({ client, target, owner, heart }, extra, counted) {
  if (extra.token !== counted?.token) cleanUp(client, target.release(owner, extra.token), heart);
}

/**
 * The replies, if they come in time.
 *
 * @param {import('./clients.js').Client} client
 * @param {string[][]} releases
 * @param {import('./heart.js').Heart} [heart] of the grant's session
 */
async function cleanUp(client, releases, heart) {
  const bound = new Bound({ ms: AFTERWARDS }, undefined, () => new Error('not cleaned up in time'));
  try {
    return (await ask(client, releases, bound)).replies;
  } catch {
    heart?.owe(releases); // without a session, the lease ends it
    return undefined;
  } finally {
    bound.close();
  }
}

/**
 * Releases once more what was not held yet: the server may grant to a connection whose end it has not seen, or has seen
 * in the same turn of its loop.
 *
 * @param {import('./clients.js').Client} client
 * @param {string[][]} releases
 * @param {import('./heart.js').Heart | undefined} heart
 * @param {Promise<unknown[] | undefined>} before the replies to the release before
 */
async function cleanUpAgain(client, releases, heart, before) {
  let replies = await before;
  for (const late of SEES_AN_END) {
    if (!replies?.includes(null)) return;
    await new Promise((resolve) => timer(() => resolve(undefined), late));
    if (client.isClosed()) return;
    replies = await cleanUp(client, releases, heart);
  }
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
    await lock.release().catch(() => {}); // then the lease ends it
    throw error;
  }
  // Without an answer the lock was held all the same, up to here.
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
