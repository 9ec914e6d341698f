'use strict';
/** Acquires a lock: sends what the attempt asks for, and hears what comes of it. */

const { ask, soon } = require('./wire/ask.js');
const { Attempt } = require('./attempt.js');
const { Tries } = require('./wire/tries.js');
const { inDatabase } = require('./wire/clients.js');
const { LockLost, NoAnswer, NotGranted, TooFewReplicas, Unlike } = require('./errors.js');
const { explained, isAnswer, isNotExecuted, isWrongType, mayRepeat, writesNothing } = require('./errors.js');
const { AFTERWARDS, PAUSE, SEES_AN_END, ofAcquisition } = require('./limits.js');
const { Lock } = require('./hold.js');
const { firstLease } = require('./options.js');
const { newOwner } = require('./owners.js');
const { answerOf, askAgain, refusedBy, waitOn } = require('./queue.js');
const { isNoSession } = require('./session.js');
const { Bound, pause, timer, unlessAborted } = require('./time.js');

/**
 * @typedef {import('./wire/clients.js').Client} Client
 * @typedef {import('./options.js').Terms} Terms
 * @typedef {import('./queue.js').Grant} Grant
 * @typedef {import('./queue.js').Request} Request
 * @typedef {import('./target.js').Target} Target
 */

/**
 * @param {Client} client
 * @param {Target} target
 * @param {Terms} terms
 * @returns {Promise<Lock>}
 */
async function acquire(client, target, terms) {
  const bound = new Bound(ofAcquisition(terms).bound, terms.signal, (cause) => new NoAnswer(target.resource, cause));
  const acquisition = new Acquisition(client, target, terms, bound);
  const running = acquisition.run();
  try {
    return await unlessAborted(running, bound.signal);
  } catch (error) {
    if (!bound.signal.aborted || error !== bound.signal.reason) throw error;
    const lock = acquisition.over();
    if (lock) return lock;
    running.then((late) => void late.free().catch(() => {}), () => {});
    throw acquisition.isRefused ? acquisition.notGranted() : error;
  } finally {
    bound.close();
  }
}

/** The most former owners of a request that are released. The hold of an older one ends with its connection. */
const MOST_FORMER = 16;

class Acquisition {
  #client;
  #target;
  #terms;
  #bound;
  #attempt;
  /** @type {import('./attempt.js').Step} */
  #step;
  /** A grant that is being confirmed. @type {Lock | undefined} */
  #confirming;
  /** The last step, if the time was over or the caller aborted. @type {import('./attempt.js').Step | undefined} */
  #end;

  /**
   * @param {Client} client
   * @param {Target} target
   * @param {Terms} terms
   * @param {Bound} bound
   */
  constructor(client, target, terms, bound) {
    this.#client = client;
    this.#target = target;
    this.#terms = terms;
    this.#bound = bound;
    this.#attempt = new Attempt(performance.now(), { ...ofAcquisition(terms).attempt, lease: firstLease(terms) });
    this.#step = this.#attempt.first();
  }

  /** Whether its time was over, and a server had refused it. */
  get isRefused() {
    return this.#end?.what === 'refused';
  }

  /** The refusal. Its cause says whether a program without dlock has the lock. */
  notGranted() {
    const { cause } = this.#bound;
    return new NotGranted(this.#target.resource, isWrongType(cause) ? cause : undefined);
  }

  /** @returns {Promise<Lock>} */
  async run() {
    for (;;) {
      const { named } = this.#terms;
      const lock = await (named ? this.#requestInSession(named) : this.#request());
      this.#confirming = lock;
      if (this.#step.what === 'granted' || (await this.#isConfirmed(lock))) {
        lock.begin();
        return lock;
      }
      // The place in the queue is lost with the grant.
      this.#confirming = undefined;
      lock.free().catch(() => {});
      if (this.#step.what === 'refused') throw this.notGranted();
    }
  }

  /** Ends the acquisition, whose time is over or which nobody wants any more. Returns the grant, if that is certain. */
  over() {
    this.#end ??= this.#terms.signal?.aborted ? this.#attempt.canceled() : this.#attempt.over(performance.now());
    const lock = this.#confirming;
    if (!lock || this.#end.what !== 'granted') return undefined;
    lock.restart(this.#attempt.since);
    lock.begin();
    return lock;
  }

  /**
   * Asks the server whether it still has a grant that may be old, until it answers.
   *
   * @param {Lock} lock
   */
  async #isConfirmed(lock) {
    const [attempt, bound] = [this.#attempt, this.#bound];
    try {
      while (this.#step.what === 'confirm') {
        const copy = attempt.sends(performance.now());
        const isThere = await this.#asked(lock);
        const now = performance.now();
        if (isThere === undefined) {
          this.#step = attempt.cut(now);
          await pause(PAUSE, bound.signal);
        } else this.#step = isThere ? attempt.ok(now, copy, lock.until) : attempt.gone(now);
      }
    } catch (error) {
      // The grant may be certain although the time is over.
      if (!bound.signal.aborted || !this.over()) lock.free().catch(() => {});
      throw error;
    }
    return this.#step.what === 'granted';
  }

  /**
   * Whether the server has the hold. undefined: it has not answered.
   *
   * @param {Lock} lock
   */
  async #asked(lock) {
    const bound = this.#bound;
    try {
      const isThere = await unlessAborted(lock.confirm(bound), bound.signal);
      bound.heard();
      return isThere;
    } catch (error) {
      bound.signal.throwIfAborted();
      if (error instanceof TooFewReplicas || (!mayRepeat(error) && !writesNothing(error))) throw error;
      bound.cause = error instanceof NoAnswer ? error.cause : error;
      return undefined;
    }
  }

  /**
   * As `#request`, in a named session. If the server does not know the session, it is opened again.
   *
   * @param {NonNullable<Terms['named']>} named
   * @returns {Promise<Lock>}
   */
  async #requestInSession(named) {
    const [bound, [key = '']] = [this.#bound, this.#target.keys];
    for (;;) {
      const heart = await named.at(key, bound);
      try {
        return await heart.during(() => this.#request(heart));
      } catch (error) {
        if (!isNoSession(error)) throw error;
        bound.cause = error;
      }
      await named.missing(heart, key, bound.signal);
    }
  }

  /**
   * Asks with a fresh owner and a REQUEST, so that the command may be sent again, and given up without a trace.
   *
   * @param {import('./heart.js').Heart} [heart] of its named session
   * @returns {Promise<Lock>}
   */
  async #request(heart) {
    const [client, target, terms, bound] = [this.#client, this.#target, this.#terms, this.#bound];
    void client.learn(); // its reply comes before that of the command
    const selected = client.database();
    const inThis = () => inDatabase(client, selected ?? client.database());
    const named = heart && { heart, id: heart.id, openings: heart.openings };
    const before = client.repeats();
    const isCopied = () => this.#attempt.isOpen || client.repeats() !== before;
    const tries = new Tries(client, target.keys[0] ?? '', bound);
    /** @type {Request} */
    const request = {
      ...{ client, target, terms, bound, heart, attempt: this.#attempt, step: this.#step },
      ...{ ...asNewOwner(target, terms, named?.id), former: [] },
    };
    try {
      const grant = await grantOf(request, tries);
      this.#step = request.step;
      bound.signal.throwIfAborted();
      if (!grant) throw this.notGranted();
      const place = grant.connection ? undefined : inThis();
      return this.#granted(grant, { request, named, tries, isCopied: isCopied(), client: place });
    } catch (error) {
      if (bound.signal.aborted) this.over();
      await this.#undo(error, { request, tries, isCopied: isCopied(), client: inThis() });
      throw error;
    }
  }

  /**
   * @param {Grant} grant
   * @param {{ request: Request, named: import('./hold.js').Granted['named'], tries: Tries, isCopied: boolean,
   *   client: Client | undefined }} of `isCopied`: a copy of the command may be executed after the release
   */
  #granted({ token, slot, connection, acknowledged, isLate }, { request, named, tries, isCopied, client }) {
    const { owner, former } = request;
    const [target, terms, attempt] = [this.#target, this.#terms, this.#attempt];
    if (acknowledged < terms.replicas) throw new TooFewReplicas(target.resource, acknowledged, terms.replicas);
    const own = terms.session ? connection : undefined;
    if (own) tries.give(own);
    const place = client ?? inDatabase(this.#client, connection?.database);
    const [sent, isOpen] = [attempt.since, attempt.mayChange];
    const releaseLate = () => void cleanUpLate(place, target.releaseAll(owner), named?.heart);
    // The end of its connection releases the hold of a former owner, but with `dlock.session-grace` later.
    if (former.length > 0) void cleanUpLate(place, target.releaseAll(...former), named?.heart);
    const afterwards = isCopied ? releaseLate : undefined;
    const lock = new Lock({ client: place, target, owner, token, slot, sent, isOpen, terms, own, named, afterwards });
    if (!isLate) tries.end();
    return lock;
  }

  /**
   * Leaves nothing behind: the lock may have been granted nevertheless.
   *
   * @param {unknown} error
   * @param {{ request: Request, tries: Tries, isCopied: boolean, client: Client }} of `isCopied`: a copy of the command
   *   may still be executed
   */
  async #undo(error, { request: { owner, former, heart }, tries, isCopied, client }) {
    const mayBeHeld = isCopied || former.length > 0;
    if (error instanceof NotGranted && !mayBeHeld) {
      tries.end();
      return;
    }
    const undone = this.#target.releaseAll(owner, ...former);
    tries.end(undone, this.#terms.replicasTimeout);
    const released = cleanUp(client, undone, heart);
    if (mayBeHeld) void released.then(() => cleanUpLate(client, undone, heart));
    if (error instanceof TooFewReplicas) await unlessAborted(released, this.#bound.signal);
  }
}

/**
 * Draws an owner. Returns it with its command.
 *
 * @param {Target} target
 * @param {Terms} terms
 * @param {string | undefined} session the id of a named one
 */
function asNewOwner(target, terms, session) {
  const owner = newOwner(terms.owner);
  const command = [...target.acquire(owner), 'PX', String(firstLease(terms)), 'REQUEST', '1'];
  if (terms.maxHold !== Infinity) command.push('MAXHOLD', String(terms.maxHold));
  if (terms.session) command.push('SESSION');
  if (session !== undefined) command.push('SESSIONID', session);
  return { owner, command };
}

/**
 * Goes on as another owner: see `Attempt.orphaned`.
 *
 * @param {Request} request
 */
function changeOwner(request) {
  const { owner, former, target, terms } = request;
  Object.assign(request, asNewOwner(target, terms, undefined));
  request.former = [...former, owner].slice(-MOST_FORMER);
}

/**
 * @param {Request} request
 * @param {Tries} tries
 * @returns {Promise<Grant | null>}
 */
async function grantOf(request, tries) {
  const { client, target, command, terms, bound, attempt } = request;
  const needsOwn = terms.session || terms.replicas > 0;
  const own = () =>
    waitOnEach(request, tries).catch((error) => {
      if (error instanceof Unlike && !needsOwn) return askAgain(request);
      throw error;
    });
  if (needsOwn || request.step.what === 'wait') return unlessAborted(own(), bound.signal);
  // Most locks are free, and need no connection of their own.
  const copy = attempt.sends(performance.now());
  /** @type {unknown} */
  let failure;
  const shared = answerOf(client.send(command, target.keys[0] ?? ''));
  shared.catch((error) => (failure = error));
  let first;
  try {
    first = await soon(shared, bound);
  } catch (error) {
    if (isAnswer(error)) attempt.failed(copy);
    throw error;
  }
  const now = performance.now();
  if (first?.granted) {
    request.step = attempt.granted(now, copy);
    return { ...first.granted, acknowledged: 0 };
  }
  if (first?.foreign) await refusedBy(first.foreign, request, copy);
  else if (first) request.step = attempt.nil(now, copy);
  else request.step = isNotExecuted(failure) ? attempt.refused(now, copy) : attempt.cut(now);
  if (request.step.what === 'refused') return null;
  if (first) return unlessAborted(own(), bound.signal);
  tries.isSuspect = true;
  return firstOf(request, tries, own(), lateOf(request, copy, shared));
}

/**
 * Waits on a connection, and on another one when it can no longer be used: as another owner, if the attempt says so.
 *
 * @param {Request} request
 * @param {Tries} tries
 * @returns {Promise<Grant | null>}
 */
async function waitOnEach(request, tries) {
  const { target } = request;
  for (;;) {
    const grant = await tries.run(async (connection) => {
      const got = await waitOn(request, connection).catch((error) => {
        if (request.step.isFresh) {
          tries.give(connection);
          connection.leave(target.releaseAll(request.owner), AFTERWARDS);
          changeOwner(request);
        }
        throw error;
      });
      if (got === undefined) tries.close(connection);
      return got;
    });
    if (grant !== undefined) return grant;
  }
}

/**
 * The grant that the silent client of the program still gets. A nil only says that nothing waits there.
 *
 * @param {Request} request
 * @param {import('./attempt.js').Copy} copy
 * @param {Promise<import('./queue.js').Answer>} shared
 * @returns {Promise<Grant | null>}
 */
async function lateOf({ attempt, terms }, copy, shared) {
  try {
    const { granted } = await shared;
    if (granted) return { ...granted, acknowledged: 0, copy };
    attempt.nil(performance.now(), copy);
    if (terms.wait === 0) return null;
  } catch (error) {
    if (isNotExecuted(error)) attempt.refused(performance.now(), copy);
    if (!mayRepeat(error)) throw explained(error);
  }
  return new Promise(() => {});
}

/**
 * @param {Request} request
 * @param {Tries} tries
 * @param {Promise<Grant | null>} other on connections of one's own
 * @param {Promise<Grant | null>} late
 */
async function firstOf(request, tries, other, late) {
  const grant = await unlessAborted(Promise.race([other, late]), request.bound.signal);
  if (grant?.copy) request.step = request.attempt.granted(performance.now(), grant.copy);
  for (const each of [other, late]) each.then((extra) => extra && dropped(request, extra, grant), () => {});
  if (grant?.connection) return grant;
  tries.endLater();
  return grant && { ...grant, isLate: true };
}

/**
 * Releases a second grant: a repeat of the request gets one if the hold of the first has ended.
 *
 * @param {Request} request
 * @param {Grant} extra
 * @param {Grant | null} counted
 */
function dropped({ client, target, owner, heart }, extra, counted) {
  if (extra.token !== counted?.token) cleanUp(client, target.release(owner, extra.token), heart);
}

/**
 * Sends releases. Returns the replies, if they come in time.
 *
 * @param {Client} client
 * @param {string[][]} releases
 * @param {import('./heart.js').Heart} [heart] of the grant's session
 */
async function cleanUp(client, releases, heart) {
  const bound = new Bound({ ms: AFTERWARDS }, undefined, () => new Error('not cleaned up in time'));
  try {
    return (await ask(client, releases, bound)).replies;
  } catch {
    heart?.owe(releases, client.home); // without a session, the lease ends the hold
    return undefined;
  } finally {
    bound.close();
  }
}

/**
 * Releases what a copy of a request takes that is executed after the release of its hold, or after the request was
 * refused or given up. The server may also grant to a connection whose end it has not seen, or has seen in the same turn
 * of its loop.
 *
 * @param {Client} client
 * @param {string[][]} releases
 * @param {import('./heart.js').Heart | undefined} heart
 */
async function cleanUpLate(client, releases, heart) {
  for (const late of SEES_AN_END) {
    await new Promise((resolve) => timer(() => resolve(undefined), late));
    if (client.isClosed()) return;
    await cleanUp(client, releases, heart);
  }
}

/**
 * Goes on with a lock that another client, perhaps of another program, has handed over.
 *
 * @param {Client} client
 * @param {Target} target
 * @param {Terms} terms
 * @param {{ owner: string, token: number }} hold
 * @returns {Promise<Lock>}
 */
async function resume(client, target, terms, { owner, token }) {
  await client.learn(); // it stays in the database that is selected now
  const place = inDatabase(client, client.database());
  const none = { slot: undefined, isOpen: false, own: undefined, named: undefined, afterwards: undefined };
  const lock = new Lock({ client: place, target, owner, token, sent: performance.now(), terms, ...none });
  const bound = new Bound({}, terms.signal, () => new Error('over'));
  try {
    if (!(await unlessAborted(lock.confirm(bound), bound.signal))) {
      throw new LockLost(target.resource, 'the server has no such hold');
    }
  } finally {
    bound.close();
  }
  lock.begin();
  return lock;
}

exports.acquire = acquire;
exports.resume = resume;
