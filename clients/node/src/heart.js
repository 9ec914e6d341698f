'use strict';
/** A named session on one server: its heartbeats, and the locks that are bound to it. */

const { randomUUID } = require('node:crypto');

const { ask } = require('./wire/ask.js');
const { Bindings } = require('./binding.js');
const { NoAnswer, isAnswer, isWrongType } = require('./errors.js');
const { Heartbeat } = require('./heartbeat.js');
const { learnCaps } = require('./info.js');
const { SESSION, SILENCE, ofHeartbeat } = require('./limits.js');
const { inDatabase } = require('./wire/clients.js');
const { Pinned } = require('./wire/pinned.js');
const { timer, unlessAborted, within } = require('./time.js');

/**
 * @typedef {import('./binding.js').Binding} Binding
 *
 * @typedef {object} Body the session that a heart belongs to, which has one heart for each server
 * @property {import('./wire/clients.js').Client} client
 * @property {number} timeout
 * @property {boolean} manual
 * @property {boolean} inCluster heartbeats have a connection of their own, and a lock may be on another node
 * @property {(heart: Heart, cause: unknown) => void} lost
 * @property {(heart: Heart) => void} idle called when the heart has had no locks for a while
 * @property {(heart: Heart, binding: Binding) => void} elsewhere called when a hold is not on the server of the heart
 */

/** How many locks are bound again, or asked for their caps, in one exchange. */
const AT_ONCE = 100;
/** The cap of a lock is asked for when no more than this many timeouts of its first lease are left. */
const CAP_IS_NEAR = 2;

const NEW = 'it was not opened';
const LATE = 'no heartbeat was confirmed within its timeout';
const CLOSED = 'it was closed';

class Heart {
  #body;
  #key;
  #id;
  /** @type {Pinned | undefined} */
  #pinned;
  /** Aborted when the session is lost or closed. */
  #over = new AbortController();
  /** Why the session is not open. @type {string | undefined} */
  #notOpen = NEW;
  /**
   * Until when the server certainly has the session, and when the next heartbeat is due. Undefined: it was never open.
   *
   * @type {Heartbeat | undefined}
   */
  #beats;
  /** Whether the program, or the work for a lock, has asked for a heartbeat that was not sent yet. */
  #isBeaten = false;
  /** Whether a heartbeat is on its way. */
  #isBusy = false;
  /** Why the last heartbeat failed, if it did. @type {unknown} */
  #failure;
  /** How often the session was opened. */
  #openings = 0;
  /** How many acquisitions are under way. */
  #users = 0;
  /** When an acquisition or a lock needed the session last. */
  #used = performance.now();
  #bindings = new Bindings();
  /** Releases that no server answered, and their databases. @type {Map<string[][], number | undefined>} */
  #owed = new Map();
  /** Called after the next heartbeat. @type {Set<() => void>} */
  #waiting = new Set();
  /** @type {NodeJS.Timeout | undefined} */
  #timer;

  /**
   * @param {Body} body
   * @param {string} id
   * @param {string} key one that is on the server of the heart
   */
  constructor(body, id, key) {
    this.#body = body;
    this.#id = id;
    this.#key = key;
    // In a cluster, the connection alone decides which server has the session, even if the slots of its locks move.
    if (body.inCluster) this.#pinned = new Pinned(body.client, () => this.#bindings.key ?? this.#key);
  }

  get id() {
    return this.#id;
  }

  get openings() {
    return this.#openings;
  }

  /** Why the session is not open, or undefined. */
  get reason() {
    return this.#notOpen ?? (performance.now() >= this.#until ? LATE : undefined);
  }

  async open() {
    await this.#round(SESSION);
    this.#arm();
  }

  /** Closes the session. Tells the server, if the session was open. */
  async close() {
    const wasOpen = this.#notOpen === undefined;
    this.#notOpen = CLOSED;
    if (!wasOpen) return;
    this.#end();
    this.#loseSome(this.#bindings.all, 'its session was closed');
    try {
      await this.#command('CLOSE', SESSION);
    } finally {
      this.#pinned?.close();
    }
  }

  /**
   * The program gives a sign of life (`Session.beat`). Before a heartbeat is due, this asks for none: a heartbeat that was
   * sent later would keep the session of a program that hangs by then.
   */
  beat() {
    if (this.#isBusy || performance.now() < this.#due) return;
    this.#isBeaten = true;
    this.#arm();
  }

  // For its locks

  /**
   * Runs an acquisition.
   *
   * @template T
   * @param {() => Promise<T>} acquisition
   */
  async during(acquisition) {
    this.#users += 1;
    try {
      return await acquisition();
    } finally {
      this.#users -= 1;
      this.#used = performance.now();
    }
  }

  /**
   * Waits for the next heartbeat.
   *
   * @param {AbortSignal} signal ends the waiting
   */
  async next(signal) {
    if (this.#notOpen !== undefined) return;
    /** @type {Promise<void>} */
    const next = new Promise((resolve) => this.#waiting.add(resolve));
    this.#hasten();
    await unlessAborted(next, signal);
  }

  /**
   * @param {Binding} binding of a lock that was granted
   * @param {string} id of the session that the grant named
   * @param {number} openings how often the session had been opened before
   */
  join(binding, id, openings) {
    if (this.reason !== undefined) throw new Error(`the session is not open: ${this.reason}`, { cause: this.#failure });
    if (id !== this.#id || openings !== this.#openings) {
      this.adopt(binding, this.#until);
      return;
    }
    this.#bindings.add(binding);
  }

  /**
   * The program has the lock from now on. No cap ends the hold within its first lease: the server refuses a lease
   * beyond a cap.
   *
   * @param {Binding} binding
   * @param {number} end of the first lease
   */
  begin(binding, end) {
    if (!binding.isCapKnown) binding.cap = end;
    if (binding.cap >= this.#until) return;
    if (binding.isCapKnown) this.#arm();
    else this.#hasten(); // the next heartbeat asks for the cap
  }

  /**
   * Binds a hold with the next heartbeat.
   *
   * @param {Binding} binding
   * @param {number} certain until when the hold is certain even if it is not bound
   */
  adopt(binding, certain) {
    this.#bindings.adopt(binding, certain);
    this.#hasten();
  }

  /** @param {Binding} binding of a lock that is about to be released, or is on another server */
  leave(binding) {
    this.#used = performance.now();
    return this.#bindings.delete(binding);
  }

  /**
   * @param {Binding} binding
   * @returns {number} until when the hold is certain
   */
  untilOf(binding) {
    return this.#bindings.untilOf(binding, this.#until);
  }

  /**
   * @param {string[][]} releases that no server answered: if the hold still exists, the session keeps it alive
   * @param {number | undefined} database
   */
  owe(releases, database) {
    if (this.#notOpen === undefined) this.#owed.set(releases, database);
  }

  // Heartbeats

  get #until() {
    return this.#beats?.until ?? -Infinity;
  }

  get #due() {
    return this.#beats?.due ?? -Infinity;
  }

  #hasten() {
    this.#beats?.hasten(performance.now());
    this.#isBeaten = true;
    this.#arm();
  }

  /** Sets the timer to the next heartbeat, or to the first end of the session or of a hold. */
  #arm() {
    clearTimeout(this.#timer);
    if (this.#notOpen !== undefined) return;
    let next = this.#bindings.firstEnd(this.#until);
    if (!this.#isBusy && (!this.#body.manual || this.#isBeaten)) next = Math.min(next, this.#due);
    // Answers that arrived while the program was busy are read before the immediate.
    this.#timer = timer(() => setImmediate(() => this.#turn()), next - performance.now());
  }

  #turn() {
    if (this.#notOpen !== undefined) return;
    const now = performance.now();
    if (now >= this.#until) return this.#lose();
    if (this.#isIdle(now)) return this.#body.idle(this);
    for (const { binding, why } of this.#bindings.over(now)) this.#loseSome([binding], why);
    if (now >= this.#due && !this.#isBusy && (!this.#body.manual || this.#isBeaten)) void this.#beat();
    else this.#arm();
  }

  /**
   * Whether the session on a node of a cluster has had no locks for a while: the next lock there opens another session.
   *
   * @param {number} now
   */
  #isIdle(now) {
    const isUsed = this.#users + this.#bindings.size + this.#owed.size > 0;
    return this.#pinned !== undefined && !isUsed && now - this.#used > this.#body.timeout;
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
    // A manual session repeats nothing by itself: see `beat`.
    if (this.#failure !== undefined || this.#bindings.unbound.length > 0) this.#beats?.repeat(performance.now());
    this.#wakeWaiting();
    this.#arm();
  }

  /**
   * Sends a heartbeat, and then what follows from its reply. Opens the session if the server does not know it.
   *
   * @param {number} [limit]
   */
  async #round(limit) {
    const known = this.#bindings.all;
    let round = this.#openings === 0 ? undefined : await this.#heartbeat('XX', limit);
    if (this.#notOpen === CLOSED) return;
    if (round === undefined) {
      this.#unbind();
      round = await this.#heartbeat('NX', limit);
      // An earlier attempt, whose reply was lost, may have opened the session.
      if (round?.bound === null) round = await this.#heartbeat('XX', limit);
    }
    const until = this.#until;
    if (this.#notOpen === CLOSED || !round || !this.#isConfirmed(round.sent)) return;
    await this.#bindAgain(this.#bindings.toBind(known, Number(round.bound), until));
    await this.#learn();
    for (const [releases, database] of this.#owed) await this.#repay(releases, database);
  }

  /**
   * Notes that a heartbeat was answered. The session is certain from when the heartbeat was sent, not from when its answer
   * came. Returns false if it was lost before the answer came.
   *
   * @param {import('./validity.js').Sent} sent
   */
  #isConfirmed(sent) {
    const now = performance.now();
    if (this.#beats) this.#beats.ok(now, sent);
    else {
      this.#beats = new Heartbeat(now, { lease: this.#body.timeout, sent: sent.at });
      this.#notOpen = undefined;
    }
    return !this.#beats.isLost;
  }

  /**
   * Sends releases once more that no server answered.
   *
   * @param {string[][]} releases
   * @param {number | undefined} database
   */
  async #repay(releases, database) {
    try {
      await this.#ask(releases, { database });
    } catch (error) {
      if (!isAnswer(error)) throw error;
      if (!isWrongType(error)) return;
    }
    this.#owed.delete(releases);
  }

  /**
   * @param {'NX' | 'XX'} option
   * @param {number} [limit]
   * @returns {Promise<{ bound: unknown, sent: import('./validity.js').Sent } | undefined>} undefined: the server does not
   *   know the session
   */
  async #heartbeat(option, limit) {
    const [now, lease] = [performance.now(), this.#body.timeout];
    const sent = this.#beats?.sends(now, lease) ?? { at: now, lease };
    try {
      const bound = await this.#command(option, limit);
      if (bound === null) this.#beats?.refused(performance.now(), sent);
      return { bound, sent };
    } catch (error) {
      if (!isNoSession(error)) throw error;
      this.#beats?.refused(performance.now(), sent);
      return undefined;
    }
  }

  /** The server has none of the bindings, and the holds are certain only for as long as they were. */
  #unbind() {
    this.#openings += 1;
    // In a cluster, each opening has a new id, which no other node knows: there, a hold that has moved must not be bound to
    // a session that gets no heartbeats.
    if (this.#pinned) this.#id = randomUUID();
    this.#bindings.unbind(this.#until);
  }

  /** @param {Binding[]} unbound */
  async #bindAgain(unbound) {
    for (const piece of this.#pieces(unbound)) {
      const some = piece.filter((binding) => this.#bindings.has(binding));
      if (some.length > 0) await this.#bind(some);
    }
  }

  /** @param {Binding[]} some */
  async #bind(some) {
    const id = this.#id;
    try {
      const replies = await this.#ask(some.flatMap(({ bind }) => bind(id)), { database: some[0]?.database });
      for (const binding of some) this.#bound(binding, replies.splice(0, binding.info.length));
    } catch (error) {
      if (!isAnswer(error) || (isNoSession(error) && !this.#pinned)) throw error;
      // The server refused one of the bindings, so each is tried alone. The next round repeats those that fail.
      if (some.length > 1) for (const binding of some) await this.#bind([binding]);
      else if (isWrongType(error)) this.#loseSome(some, 'the key is no lock any more');
      else if (isNoSession(error)) some.forEach((binding) => this.#body.elsewhere(this, binding));
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

  /** Asks for the caps of locks whose first lease ends soon: no cap ends them within that lease. */
  async #learn() {
    for (const some of this.#pieces(this.#bindings.toLearn(performance.now() + CAP_IS_NEAR * this.#body.timeout))) {
      await learnCaps(some, (commands) => this.#ask(commands, { database: some[0]?.database }));
    }
  }

  /**
   * Yields a few locks at a time, until the next heartbeat is due. Even a round that is late gets one piece: otherwise
   * a slow program, whose rounds are all late, would bind nothing.
   *
   * @param {Binding[]} some
   */
  *#pieces(some) {
    for (const [at, piece] of Bindings.pieces(some, AT_ONCE).entries()) {
      if (at > 0 && performance.now() >= this.#due) return;
      yield piece;
    }
  }

  // Commands

  /**
   * @param {'NX' | 'XX' | 'CLOSE'} option
   * @param {number} [limit]
   */
  async #command(option, limit) {
    const time = option === 'CLOSE' ? [] : ['PX', String(this.#body.timeout)];
    const command = ['DLOCK.SESSION', this.#id, ...time, option];
    const pinned = this.#pinned;
    if (!pinned) return (await this.#ask([command], { limit }))[0];
    return this.#within(limit, (bound, silence) => pinned.send(command, bound, silence));
  }

  /**
   * @param {string[][]} commands each with its key behind its name
   * @param {{ limit?: number | undefined, database?: number | undefined }} [how]
   */
  async #ask(commands, { limit, database } = {}) {
    const client = inDatabase(this.#body.client, database);
    return this.#within(limit, async (bound, silence) => {
      const { replies } = await ask(client, commands, bound, silence);
      return [...replies];
    });
  }

  /**
   * @template T
   * @param {number | undefined} limit
   * @param {(bound: import('./time.js').Bound, silence: number) => Promise<T>} task
   */
  async #within(limit, task) {
    const ms = limit ?? ofHeartbeat(this.#body.timeout, this.#until - performance.now());
    // The connections that a failed heartbeat used may lead to a server that hangs, or was replaced.
    const silence = this.#failure === undefined ? Math.min(SILENCE, ms / 2) : 0;
    const signal = this.#notOpen === CLOSED ? undefined : this.#over.signal;
    const noAnswer = (/** @type {unknown} */ cause) => new NoAnswer(`the session ${this.#id}`, cause);
    return within({ ms }, signal, noAnswer, (bound) => task(bound, silence));
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
    this.#pinned?.close();
    this.#body.lost(this, this.#failure);
    this.#loseSome(this.#bindings.all, `its session is not open: ${LATE}`, this.#failure);
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

exports.CLOSED = CLOSED;
exports.Heart = Heart;
exports.LATE = LATE;
exports.NEW = NEW;
exports.isNoSession = isNoSession;
