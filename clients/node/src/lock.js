'use strict';
/** A lock that was granted: until when it is known to be held, and how it is kept and released. */

const { ask, soon } = require('./ask.js');
const { Attempts } = require('./attempts.js');
const { LockLost, NoAnswer, TooFewReplicas, isWrongType, mayRepeat, writesNothing } = require('./errors.js');
const { learnCaps } = require('./info.js');
const { Lengths } = require('./lengths.js');
const { checkLease, firstLease } = require('./options.js');
const { waitFor } = require('./queue.js');
const { Bound, timer, unlessAborted, within } = require('./time.js');

/**
 * @typedef {import('./index.js').Lock} Declared
 * @typedef {import('./connection.js').Connection} Connection
 * @typedef {import('./heart.js').Heart} Heart
 *
 * @typedef {object} Granted
 * @property {import('./clients.js').Client} client
 * @property {import('./target.js').Target} target
 * @property {string} owner
 * @property {number} token
 * @property {number | undefined} slot
 * @property {number} sent when the command that was granted was sent
 * @property {import('./options.js').Terms} terms
 * @property {Connection | undefined} own the connection that a session is bound to
 * @property {Connection[]} late others on which the request is unanswered
 * @property {{ heart: Heart, id: string, openings: number } | undefined} named its session, as the grant named it, and
 *   how often that had been opened before
 */

const OVERWRITTEN = 'the key is no lock any more';

/** @implements {Declared} */
class Lock {
  #granted;
  /** The lease that the next renewal asks for. */
  #lease;
  #lengths;
  /** It stays at least until then, even if it is released earlier. */
  #staysUntil;
  /** Held until then for certain, by performance.now(). */
  #until;
  #lost = new AbortController();
  /** Why it is lost. */
  #why = '';
  /** Aborted when it is lost or released. */
  #over = new AbortController();
  /** The connection of a session, while it is open. @type {Connection | undefined} */
  #own;
  /**
   * Connections on which a command that binds is unanswered. If it arrives later, it moves the hold there, so they stay
   * open for as long as the hold: their end would release it.
   */
  #late;
  #isBinding = false;
  /** Its connections are. */
  #isClosed = false;
  /** For its named session. @type {import('./session.js').Binding | undefined} */
  #binding;
  /** @type {NodeJS.Timeout | undefined} */
  #ending;
  /** @type {NodeJS.Timeout | undefined} */
  #keeping;
  #isKept = false;

  /** @param {Granted} granted */
  constructor(granted) {
    this.#granted = granted;
    this.#lease = granted.terms.lease;
    this.#lengths = new Lengths(this.#lease);
    this.#late = granted.late;
    // The grant came before now.
    this.#staysUntil = performance.now() + granted.terms.atLeast;
    this.#until = granted.sent + firstLease(granted.terms);
    if (granted.named) this.#join(granted.named);
    this.#watchEnd();
    if (!granted.own) return;
    this.#bindTo(granted.own);
    this.keep();
  }

  get resource() {
    return this.#granted.target.resource;
  }

  get owner() {
    return this.#granted.owner;
  }

  get token() {
    return this.#granted.token;
  }

  get slot() {
    return this.#granted.slot;
  }

  get signal() {
    return this.#lost.signal;
  }

  get remaining() {
    return this.#isOver ? 0 : Math.max(0, this.#certain - performance.now());
  }

  /** @param {number} [lease] */
  async extend(lease = this.#lease) {
    checkLease(lease);
    const before = this.#lengths.sure;
    try {
      await this.#extend(this.#granted.terms.named?.leaseOf(lease) ?? lease);
    } finally {
      // The next renewal is due earlier, or later.
      if (this.#isKept && this.#lengths.sure !== before) this.keep();
    }
  }

  /** @param {number} lease */
  async #extend(lease) {
    if (this.signal.aborted) throw new LockLost(this.resource, `it was lost before: ${this.#why}`, this.signal.reason);
    if (this.#isOver) throw new LockLost(this.resource, 'it was released');
    const sent = performance.now();
    const { answer, replicas, replicasTimeout, atLeast } = this.#granted.terms;
    const longest = answer + (replicas > 0 ? replicasTimeout : 0);
    const time = atLeast > 0 ? Math.max(lease, Math.ceil(this.#staysUntil - sent)) : lease;
    this.#lengths.sends(time);
    // It may be executed without an answer.
    if (sent + time < this.#until) this.#confirmed(sent, time);
    const { replies, repeated } = await this.#within(this.signal, (bound) => this.#renew(time, bound), longest).catch(
      (error) => {
        if (error instanceof TooFewReplicas) this.#lengths.answered(false);
        throw isWrongType(error) ? this.#lose(OVERWRITTEN, error) : error;
      },
    );
    if (!repeated) this.#lengths.answered(true);
    if (replies.includes(null)) throw this.#lose('the server has no such hold');
    this.#lease = lease;
    await this.#renewed(replies, sent, time);
  }

  async release() {
    const left = Math.ceil(this.#staysUntil - performance.now());
    if (this.#granted.terms.atLeast > 0 && left > 0) return this.releaseIn(left);
    return this.free();
  }

  /**
   * Leaves the lock to the end of its lease.
   *
   * @param {number} ms
   */
  async releaseIn(ms) {
    const { client, target, owner, token } = this.#granted;
    this.#over.abort();
    this.#stopTimers();
    const commands = target.renew(owner, token, ms);
    try {
      const { replies } = await this.#within(undefined, (bound) => ask(client, commands, bound));
      return !replies.includes(null);
    } catch (error) {
      if (isWrongType(error)) return false;
      throw error;
    }
  }

  /** Releases it at once, `atLeast` or not. */
  async free() {
    this.#over.abort();
    this.#stopTimers();
    this.#leave();
    try {
      const { replies, repeated } = await this.#within(undefined, (bound) => this.#release(bound));
      // A second try that finds nothing finds what the first has done, unless it had been lost before.
      return !replies.includes(null) || (repeated && performance.now() < this.#certain);
    } catch (error) {
      if (isWrongType(error)) return false; // another program has overwritten the key
      // The session would keep the hold.
      this.#binding?.heart.owe(this.#granted.target.release(this.owner, this.token));
      throw error;
    } finally {
      this.#closeAll();
    }
  }

  /** What fails here would hide how the block ended: without an answer, the lease ends the lock. */
  async [Symbol.asyncDispose]() {
    await this.release().catch(() => {});
  }

  /** Renews the lease whenever a third of it has passed, until the release or until it is lost: see `using`. */
  keep() {
    clearTimeout(this.#keeping);
    if (this.#binding || this.#isOver) return; // its session does
    this.#isKept = true;
    this.#keeping = timer(() => void this.#refresh(), this.#shortest / 3);
  }

  /**
   * Whether the lock is still held, with at least two thirds of the lease left: asked of the server if the command that
   * was granted waited longer than that.
   *
   * @param {import('./time.js').Bound} bound ends the asking
   */
  async confirm(bound) {
    const isFresh = performance.now() - this.#granted.sent <= this.#lease / 3;
    if (this.#binding) return (isFresh || (await this.#learnCap(this.#binding, bound))) && !this.#isOver;
    if (isFresh) return true;
    clearTimeout(this.#ending);
    try {
      await unlessAborted(this.extend(), bound.signal);
      return true;
    } catch (error) {
      this.free().catch(() => {}); // then the lease ends it
      if (error instanceof LockLost) return false;
      throw error;
    }
  }

  /**
   * Whether the server has the hold, and until when no cap ends it: its lease has begun some time ago.
   *
   * @param {import('./session.js').Binding} binding
   * @param {import('./time.js').Bound} bound
   */
  async #learnCap(binding, bound) {
    const send = async (/** @type {string[][]} */ commands) => [
      ...(await ask(this.#granted.client, commands, bound)).replies,
    ];
    try {
      await learnCaps([binding], send);
    } catch (error) {
      this.free().catch(() => {});
      throw error;
    }
    if (!binding.isCapKnown) this.free().catch(() => {});
    return binding.isCapKnown;
  }

  /**
   * Runs a task that takes no longer than a command may.
   *
   * @template T
   * @param {AbortSignal | undefined} signal
   * @param {(bound: import('./time.js').Bound) => Promise<T>} task
   * @param {number} [ms]
   */
  async #within(signal, task, ms = this.#granted.terms.answer) {
    return within({ ms }, signal, (cause) => new NoAnswer(this.resource, cause), task);
  }

  /**
   * @param {number} lease
   * @param {import('./time.js').Bound} bound
   */
  async #renew(lease, bound) {
    const { client, target, owner, token, terms } = this.#granted;
    const commands = target.renew(owner, token, lease);
    if (terms.replicas === 0) return ask(client, commands, bound);
    const exchange = [...commands, waitFor(terms)];
    const attempts = new Attempts(client, target.keys[0] ?? '', bound);
    let tries = 0;
    const send = (/** @type {Connection} */ connection) => {
      tries += 1;
      return connection.exchange(exchange, bound.signal);
    };
    try {
      const replies = await (this.#own?.exchange(exchange) ?? attempts.run(send));
      const acknowledged = Number(replies.pop());
      if (!replies.includes(null) && acknowledged < terms.replicas) {
        throw new TooFewReplicas(this.resource, acknowledged, terms.replicas);
      }
      return { replies, repeated: tries > 1 };
    } finally {
      attempts.end();
    }
  }

  /** @param {import('./time.js').Bound} bound */
  async #release(bound) {
    const { client, target, owner, token } = this.#granted;
    const commands = target.release(owner, token);
    const own = this.#own?.exchange(commands);
    const replies = own && (await soon(own, bound));
    if (replies) return { replies, repeated: false };
    const answer = await ask(client, commands, bound);
    return own ? { ...answer, repeated: true } : answer;
  }

  async #refresh() {
    try {
      await (this.#own && this.#granted.terms.replicas === 0 ? this.#look(this.#own) : this.#extend(this.#lease));
      if (!this.#isOver) this.keep();
    } catch (error) {
      if (this.#isOver) return;
      if (!mayRepeat(error) && !writesNothing(error)) {
        this.#lose('it could not be renewed', error);
        return;
      }
      if (this.#granted.terms.session) void this.#bind();
      this.#keeping = timer(() => void this.#refresh(), Math.min(this.#shortest / 30, 1000));
    }
  }

  /**
   * @param {unknown[]} replies to renewals, none of them null
   * @param {number} sent
   * @param {number} lease
   */
  async #renewed(replies, sent, lease) {
    if (!replies.some((reply) => Number(reply) === 0)) {
      this.#confirmed(sent, lease);
      return;
    }
    // A cap cut it: it lasts for less than was asked, and the server knows for how long.
    const { client, target, token } = this.#granted;
    const asked = performance.now();
    const { replies: left } = await this.#within(this.signal, (bound) => ask(client, target.check(token), bound));
    if (left.includes(null)) throw this.#lose('the server has no such hold');
    this.#confirmed(asked, Math.min(...left.map(Number)));
  }

  /**
   * The server renews a session. It only finds out whether the server is still there.
   *
   * @param {Connection} own
   */
  async #look(own) {
    const { target, token, terms } = this.#granted;
    const sent = performance.now();
    // A later reply is read all the same, so that the session goes on.
    const look = () => own.exchange(target.check(token));
    // Half of the lease is left to bind it elsewhere.
    const left = await this.#within(this.#over.signal, look, Math.min(terms.answer, this.#shortest / 6));
    if (left.includes(null)) throw this.#lose('the server has no such hold');
    this.#confirmed(sent, Math.min(...left.map(Number)));
  }

  /** @param {Connection} own the connection that the session is bound to from now on */
  #bindTo(own) {
    this.#own = own;
    own.closed.then(() => {
      if (this.#own !== own) return;
      this.#own = undefined;
      void this.#bind();
    });
  }

  /**
   * Binds a session to a new connection, because the server does not answer on the one it has, or has lost it. If the
   * server is still the same, it has released the lock with the connection, and says so.
   */
  async #bind() {
    if (this.#isBinding || this.#isOver) return;
    this.#isBinding = true;
    const { client, target, owner, token } = this.#granted;
    const bound = new Bound({}, this.#over.signal, () => new Error('over'));
    const attempts = new Attempts(client, target.keys[0] ?? '', bound);
    attempts.isSuspect = true;
    try {
      await attempts.run(async (connection) => {
        // Only to a server that answers: a hung one would read it after the connection was given up, bind the lock to
        // that, and release it with it, after a later try has succeeded.
        await this.#within(bound.signal, ({ signal }) => connection.exchange(target.check(token), signal));
        const [sent, lease] = [performance.now(), this.#lease];
        this.#lengths.sends(lease);
        const commands = target.renew(owner, token, lease).map((renewal) => [...renewal, 'SESSION']);
        const exchange = connection.exchange(commands);
        const replies = await this.#within(bound.signal, ({ signal }) => unlessAborted(exchange, signal)).catch((error) => {
          if (connection.isUnread) this.#keepOpen(connection, attempts);
          throw error;
        });
        this.#lengths.answered(true);
        if (replies.includes(null)) throw this.#lose('its session ended with its connection');
        const before = this.#own;
        attempts.give(connection);
        this.#bindTo(connection);
        before?.close();
        await this.#renewed(replies, sent, lease);
      });
    } catch (error) {
      if (!this.#isOver) this.#lose('its session could not be bound to a new connection', error);
    } finally {
      this.#isBinding = false;
      attempts.end();
      bound.close();
    }
  }

  /**
   * @param {Connection} connection
   * @param {Attempts} attempts that made it
   */
  #keepOpen(connection, attempts) {
    // Its end would release the lock before the release that is on its way does, which would find nothing.
    if (this.#isClosed) return;
    attempts.give(connection);
    this.#late.push(connection);
  }

  #closeAll() {
    this.#isClosed = true;
    this.#own?.close();
    for (const connection of this.#late) connection.close();
  }

  /**
   * @param {number} sent
   * @param {number} left
   */
  #confirmed(sent, left) {
    this.#until = sent + Math.min(left, this.#lengths.sure);
    this.#watchEnd();
  }

  /** The lease to renew by. */
  get #shortest() {
    return Math.min(this.#lease, this.#lengths.sure);
  }

  /** Until when it is held for certain. */
  get #certain() {
    return this.#binding ? this.#binding.heart.untilOf(this.#binding) : this.#until;
  }

  /** @param {{ heart: Heart, id: string, openings: number }} named the session that keeps it */
  #join({ heart, id, openings }) {
    const { target, owner, token, sent } = this.#granted;
    // The server refuses a lease beyond the cap. After a wait nobody knows when it began: `confirm` asks.
    const cap = performance.now() - sent <= this.#lease / 3 ? sent + this.#lease : Infinity;
    const binding = {
      ...{ key: target.keys[0] ?? '', token, heart, cap, isCapKnown: false, unbound: undefined },
      bind: (/** @type {string} */ session) => target.bind(owner, token, session),
      info: target.info(owner),
      lose: (/** @type {string} */ why, /** @type {unknown} */ cause) => void this.#lose(why, cause),
    };
    heart.join(binding, id, openings);
    this.#binding = binding;
  }

  #leave() {
    this.#binding?.heart.leave(this.#binding);
  }

  #watchEnd() {
    clearTimeout(this.#ending);
    if (this.#isOver || this.#binding) return;
    const left = this.#until - performance.now();
    const end = () => (this.#until <= performance.now() ? this.#lose('its lease ended') : this.#watchEnd());
    this.#ending = timer(end, left);
  }

  get #isOver() {
    return this.#over.signal.aborted;
  }

  /**
   * @param {string} why
   * @param {unknown} [cause]
   */
  #lose(why, cause) {
    const lost = new LockLost(this.resource, why, cause);
    this.#why = this.signal.aborted ? this.#why : why;
    if (!this.#isOver) this.#lost.abort(lost);
    this.#over.abort();
    this.#stopTimers();
    this.#leave();
    this.#closeAll();
    return lost;
  }

  #stopTimers() {
    clearTimeout(this.#ending);
    clearTimeout(this.#keeping);
  }
}

exports.Lock = Lock;
