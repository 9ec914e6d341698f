'use strict';
/** A lock that was granted: until when it is certainly held, and how it is kept and released. */

const { ask, soon } = require('./wire/ask.js');
const { valuesOf } = require('./wire/connection.js');
const { Tries } = require('./wire/tries.js');
const { LockLost, NoAnswer, TooFewReplicas } = require('./errors.js');
const { isOneExecuted, isUnanswered, isWrongType, mayRepeat, writesNothing } = require('./errors.js');
const { Heartbeat } = require('./heartbeat.js');
const { learnCaps } = require('./info.js');
const { SEES_AN_END, ofLateRenewals, ofLook, ofRenewal } = require('./limits.js');
const { checkLease, firstLease } = require('./options.js');
const { waitFor } = require('./queue.js');
const { Bound, Ending, follow, pause, timer, unlessAborted, within } = require('./time.js');
const { ROUNDED } = require('./validity.js');

/**
 * @typedef {import('./index.js').Lock} Declared
 * @typedef {import('./wire/connection.js').Connection} Connection
 * @typedef {import('./heart.js').Heart} Heart
 *
 * @typedef {object} Granted
 * @property {import('./wire/clients.js').Client} client
 * @property {import('./target.js').Target} target
 * @property {string} owner
 * @property {number} token
 * @property {number | undefined} slot
 * @property {number} sent when the command was sent: the lease counts from then
 * @property {boolean} isOpen another copy of the command may still be executed
 * @property {import('./options.js').Terms} terms
 * @property {Connection | undefined} own the connection that a session is bound to
 * @property {{ heart: Heart, id: string, openings: number } | undefined} named the named session, with the id that the
 *   command had, and how often the session had been opened before
 * @property {(() => void) | undefined} afterwards called after the release, if a copy of the command may be executed then
 */

const OVERWRITTEN = 'the key is no lock any more';
const CUT_OFF = 'a connection to which it was being bound has ended';
const OVER = new Error('the lock was released, or is lost');

/** @implements {Declared} */
class Lock {
  #granted;
  /** The lease that the next renewal asks for. */
  #lease;
  /** Until when the lock is certainly held, and when it must be renewed. */
  #beats;
  /** Until when the lock stays even if the program releases it earlier (`atLeast`). */
  #staysUntil;
  #lost = new Ending();
  /** The controller of `signal`, once the program has asked for the signal. @type {AbortController | undefined} */
  #told;
  /** Why the lock is lost. */
  #why = '';
  /** Aborted when the lock is lost or released. */
  #over = new Ending();
  /** The connection of a session, while it is open. @type {Connection | undefined} */
  #own;
  /**
   * Connections on which a command that binds the hold was not answered in time. If the server executes it later, the
   * hold is bound there, and ends with that connection. So they stay open for as long as the hold.
   *
   * @type {Connection[]}
   */
  #late = [];
  #isBinding = false;
  /** Whether the server may have released the hold: the session's connection has ended, or a binding is unanswered. */
  #isUnbound = false;
  /** Whether the program has the lock. Before that, no timer watches for the end of the lease. */
  #isBegun = false;
  /** Whether the connections of the hold are closed. */
  #isClosed = false;
  /** Whether another client goes on with the hold, which only that client releases. */
  #isHandedOver = false;
  /** The binding to a named session. @type {import('./session.js').Binding | undefined} */
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
    // The time since the grant is not counted: the lock may stay longer than `atLeast`, never shorter.
    this.#staysUntil = performance.now() + granted.terms.atLeast;
    const [lease, now] = [firstLease(granted.terms), performance.now()];
    this.#beats = new Heartbeat(now, { lease, sent: granted.sent, isOpen: granted.isOpen });
    if (granted.named) this.#join(granted.named);
    if (granted.own) this.#bindTo(granted.own);
  }

  // For the acquisition

  /** Gives the hold to the program. */
  begin() {
    this.#isBegun = true;
    const { sent, terms } = this.#granted;
    this.#binding?.heart.begin(this.#binding, sent + firstLease(terms) - ROUNDED);
    this.#watchEnd();
    const { session, renew } = this.#granted.terms;
    if (session || renew) this.keep();
  }

  /** Until when the lock is certainly held, once it is confirmed. undefined: the named session and the cap decide. */
  get until() {
    return this.#binding ? undefined : this.#beats.until;
  }

  /**
   * Counts the lease from `sent`, although the hold is not confirmed.
   *
   * @param {number} sent
   */
  restart(sent) {
    if (!this.#isOver) this.#beats.counts(performance.now(), { lease: firstLease(this.#granted.terms), sent });
  }

  /**
   * Asks whether the server still has a hold of which too little time is certain. Renews the hold, or asks for its cap
   * if a named session renews it. Returns whether the hold is confirmed.
   *
   * @param {import('./time.js').Bound} bound ends the question about the cap
   */
  async confirm(bound) {
    if (this.#binding) return (await this.#learnCap(this.#binding, bound)) && !this.#isOver;
    if (!this.#isBegun) this.#beats.confirms();
    try {
      await this.extend();
      return !this.#isOver;
    } catch (error) {
      if (error instanceof LockLost) return false;
      throw error;
    }
  }

  // For the program

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
    if (this.#told) return this.#told.signal;
    const told = (this.#told = new AbortController());
    follow(this.#lost.signal, () => told.abort(this.#lost.reason));
    return told.signal;
  }

  get remaining() {
    return this.#isOver || this.#isUnbound ? 0 : Math.max(0, this.#certain - performance.now());
  }

  /** @param {number} [lease] */
  async extend(lease = this.#lease) {
    checkLease(lease);
    try {
      await this.#extend(this.#granted.terms.named?.leaseOf(lease) ?? lease);
    } finally {
      // The time of the next renewal has changed.
      if (this.#isKept) this.keep();
    }
  }

  /** @param {number} lease */
  async #extend(lease) {
    this.#checkHeld();
    const now = performance.now();
    const { terms } = this.#granted;
    const { atLeast } = terms;
    const time = atLeast > 0 ? Math.max(lease, Math.ceil(this.#staysUntil - now)) : lease;
    // Counted before the command is sent, because the server may execute it without an answer.
    const sent = this.#beats.sends(now, time);
    this.#watchEnd();
    // The renewal is not repeated once the lock is released or handed over.
    const renewal = this.#within(this.#over.signal, (bound) => this.#renew(time, bound), ofRenewal(terms));
    const { replies, repeated } = await renewal.catch((error) => {
      if (error === OVER) throw this.#lost.reason ?? new LockLost(this.resource, 'it was released');
      if (error instanceof TooFewReplicas) this.#beats.refused(performance.now(), sent);
      else this.#beats.cut(performance.now());
      throw isWrongType(error) ? this.#lose(OVERWRITTEN, error) : error;
    });
    if (repeated) this.#beats.repeats(sent);
    if (replies.includes(null)) throw this.#lose('the server has no such hold');
    this.#lease = lease;
    await this.#renewed(replies, sent);
  }

  #checkHeld() {
    if (this.#lost.aborted) throw new LockLost(this.resource, `it was lost before: ${this.#why}`, this.#lost.reason);
    if (this.#isOver) throw new LockLost(this.resource, 'it was released');
  }

  handOver() {
    this.#checkHeld();
    const { own, named } = this.#granted;
    if (own || named) throw new TypeError('a session ends with its program: a lock that is handed over has a lease');
    // The timer that watches for the end of the lease may be late.
    if (this.remaining === 0) throw this.#lose('its lease ended');
    this.#isHandedOver = true;
    this.#end();
  }

  release() {
    const left = Math.ceil(this.#staysUntil - performance.now());
    if (this.#granted.terms.atLeast > 0 && left > 0) return this.releaseIn(left);
    return this.free();
  }

  /**
   * Leaves the lock to a lease that ends in this many ms.
   *
   * @param {number} ms
   */
  async releaseIn(ms) {
    if (this.#isHandedOver) return true;
    const { client, target, owner, token } = this.#granted;
    const end = performance.now() + ms;
    // A renewal without an answer, executed after the last one, would end the lock too early or too late.
    const late = this.#beats.isOpen ? ofLateRenewals(Math.min(this.remaining, ms)) : 0;
    this.#end();
    if (late > 0) await pause(late, undefined);
    const left = Math.max(1, Math.ceil(end - performance.now()));
    const commands = target.renew(owner, token, left);
    try {
      const { replies } = await this.#within(undefined, (bound) => ask(client, commands, bound));
      return !replies.includes(null);
    } catch (error) {
      if (isWrongType(error)) return false;
      throw error;
    } finally {
      // A copy that is executed before the end of the lease takes nothing.
      const { afterwards } = this.#granted;
      if (afterwards && left < Math.max(...SEES_AN_END)) timer(afterwards, left);
    }
  }

  /** Releases the lock at once, even before the end of `atLeast`. */
  async free() {
    if (this.#isHandedOver) return true;
    const wasHeld = this.remaining > 0;
    this.#end();
    this.#leave();
    try {
      const { replies, repeated } = await this.#within(undefined, (bound) => this.#release(bound));
      // If a second try finds no hold, the first try has released the hold, unless the hold was lost before.
      return !replies.includes(null) || (repeated && wasHeld && performance.now() < this.#certain);
    } catch (error) {
      if (isWrongType(error)) return false; // another program has overwritten the key
      // A named session would keep the hold, so the session repeats the release.
      const { client, target } = this.#granted;
      this.#binding?.heart.owe(target.release(this.owner, this.token), client.home);
      throw error;
    } finally {
      this.#closeAll();
      this.#granted.afterwards?.();
    }
  }

  /** Never fails, since an error would hide how the block ended: without an answer, the lease ends the lock. */
  async [Symbol.asyncDispose]() {
    await this.release().catch(() => {});
  }

  /** Renews the lease whenever a third of it has passed, until the lock is released or lost. */
  keep() {
    clearTimeout(this.#keeping);
    if (this.#binding || this.#isOver) return; // a named session renews its locks
    this.#isKept = true;
    if (this.#beats.due === Infinity) return; // the lock ends at its cap
    this.#keeping = timer(() => void this.#refresh(), this.#beats.due - performance.now());
  }

  /** Ends the renewals: the lock ends with its lease. */
  stopKeeping() {
    this.#isKept = false;
    clearTimeout(this.#keeping);
  }

  /**
   * Asks whether the server has the hold, and when its cap ends it. After a wait, only the server knows when the hold
   * began. Returns whether the cap is known now.
   *
   * @param {import('./session.js').Binding} binding
   * @param {import('./time.js').Bound} bound
   */
  async #learnCap(binding, bound) {
    const send = async (/** @type {string[][]} */ commands) => [
      ...(await ask(this.#granted.client, commands, bound)).replies,
    ];
    await learnCaps([binding], send);
    return binding.isCapKnown;
  }

  /**
   * Runs a task that may take as long as a command, or `ms`.
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
   * Sends a renewal, and waits for the replicas if the lock has some.
   *
   * @param {number} lease
   * @param {import('./time.js').Bound} bound
   */
  async #renew(lease, bound) {
    const { client, target, owner, token, terms } = this.#granted;
    const commands = target.renew(owner, token, lease);
    if (terms.replicas === 0) return ask(client, commands, bound);
    const exchange = [...commands, waitFor({ terms })];
    const tries = new Tries(client, target.keys[0] ?? '', bound);
    let sends = 0;
    const send = (/** @type {Connection} */ connection) => {
      sends += 1;
      return connection.exchange(exchange, bound.signal);
    };
    try {
      const replies = await (this.#own ? this.#onOwn(this.#own, exchange) : tries.run(send));
      const acknowledged = Number(replies.pop());
      if (!replies.includes(null) && acknowledged < terms.replicas) {
        throw new TooFewReplicas(this.resource, acknowledged, terms.replicas);
      }
      return { replies, repeated: sends > 1 };
    } finally {
      tries.end();
    }
  }

  /**
   * Renews a hold that is bound to a connection, on that connection. Only `#bind` uses another connection.
   *
   * @param {Connection} own
   * @param {string[][]} exchange
   */
  async #onOwn(own, exchange) {
    try {
      return await own.exchange(exchange);
    } catch (error) {
      throw mayRepeat(error) ? new NoAnswer(this.resource, error) : error;
    }
  }

  /**
   * Releases the hold: on the connection of its session first, then on others.
   *
   * @param {import('./time.js').Bound} bound
   */
  async #release(bound) {
    const { client, target, owner, token } = this.#granted;
    const commands = target.release(owner, token);
    const own = this.#own?.settle(commands);
    let isOpen = own !== undefined;
    own?.then((settled) => (isOpen = isOneExecuted(settled)));
    const replies = own && (await soon(own.then(valuesOf), bound));
    if (replies) return { replies, repeated: false };
    const answer = await ask(client, commands, bound);
    return { ...answer, repeated: answer.repeated || isOpen };
  }

  /** Renews the lock, or asks about it if the server renews it. Schedules the next renewal. */
  async #refresh() {
    try {
      await (this.#own && this.#granted.terms.replicas === 0 ? this.#look(this.#own) : this.#extend(this.#lease));
      if (this.#isKept) this.keep();
    } catch (error) {
      if (this.#isOver) return;
      if (!mayRepeat(error) && !writesNothing(error)) {
        this.#lose('it could not be renewed', error);
        return;
      }
      if (this.#granted.terms.session) void this.#bind();
      if (this.#isKept) this.keep();
    }
  }

  /**
   * Acts on the replies to a renewal that was executed.
   *
   * @param {unknown[]} replies to renewals, none of them null
   * @param {import('./validity.js').Sent} sent
   */
  async #renewed(replies, sent) {
    if (!replies.some((reply) => Number(reply) === 0)) {
      this.#beats.ok(performance.now(), sent);
      this.#watchEnd();
      return;
    }
    // A cap cut the renewal: the hold lasts for less than was asked, and the server knows for how long.
    this.#beats.capped(performance.now(), sent);
    const { client, target, token } = this.#granted;
    const asked = this.#beats.asks(performance.now());
    const { replies: left } = await this.#within(this.#lost.signal, (bound) => ask(client, target.check(token), bound));
    if (left.includes(null)) throw this.#lose('the server has no such hold');
    this.#beats.left(performance.now(), asked, Math.min(...left.map(Number)));
    this.#watchEnd();
  }

  /**
   * Asks whether a server that renews the hold itself still has it.
   *
   * @param {Connection} own
   */
  async #look(own) {
    const { target, token, terms } = this.#granted;
    const asked = this.#beats.asks(performance.now());
    // A reply that comes after the limit is still read, so that the connection, and with it the session, goes on.
    const look = () => own.exchange(target.check(token));
    const left = await this.#within(this.#over.signal, look, ofLook(terms.answer, this.#lease)).catch((error) => {
      this.#beats.cut(performance.now());
      throw error;
    });
    if (left.includes(null)) throw this.#lose('the server has no such hold');
    const now = performance.now();
    this.#beats.left(now, asked, Math.min(...left.map(Number)));
    this.#beats.looked(now, asked);
    this.#watchEnd();
  }

  /**
   * Records the connection to which the hold is bound. When the connection ends, binds the hold to another one.
   *
   * @param {Connection} own
   */
  #bindTo(own) {
    this.#own = own;
    this.#isUnbound = false;
    own.closed.then(() => {
      if (this.#own !== own) return;
      this.#own = undefined;
      this.#isUnbound = true;
      void this.#bind();
    });
  }

  /**
   * Binds the hold to a new connection, because the server does not answer on the old one, or the old one has ended. If
   * the same server has seen that end, it has released the lock, and replies nil.
   */
  async #bind() {
    if (this.#isBinding || this.#isOver) return;
    this.#isBinding = true;
    const { client, target, owner, token } = this.#granted;
    const bound = new Bound({}, this.#over.signal, () => new Error('over'));
    const tries = new Tries(client, target.keys[0] ?? '', bound);
    tries.isSuspect = true;
    try {
      await tries.run(async (connection) => {
        // The server must answer a question first. A server that hangs could read the renewal after a later try has
        // succeeded on another connection: the lock would be bound to this one, and released at its end.
        await this.#within(bound.signal, ({ signal }) => connection.exchange(target.check(token), signal));
        const lease = this.#lease;
        const sent = this.#beats.sends(performance.now(), lease);
        this.#isUnbound = true;
        const commands = target.renew(owner, token, lease).map((renewal) => [...renewal, 'SESSION']);
        const binding = connection.settle(commands);
        const inTime = this.#within(bound.signal, ({ signal }) => unlessAborted(binding, signal));
        const settled = await inTime.catch((error) => {
          if (connection.isUnread) this.#keepOpen(connection, tries, binding);
          throw error;
        });
        const cutOff = settled.find(isCutOff);
        if (cutOff) throw this.#lose(CUT_OFF, cutOff.reason);
        const replies = valuesOf(settled);
        if (replies.includes(null)) throw this.#lose('its session ended with its connection');
        const before = this.#own;
        tries.give(connection);
        this.#bindTo(connection);
        before?.close();
        await this.#renewed(replies, sent);
      });
    } catch (error) {
      if (!this.#isOver) this.#lose('its session could not be bound to a new connection', error);
    } finally {
      this.#isBinding = false;
      tries.end();
      bound.close();
    }
  }

  /**
   * Keeps a connection open on which a command that binds the hold is unanswered: see `#late`.
   *
   * @param {Connection} connection
   * @param {Tries} tries that made it
   * @param {Promise<PromiseSettledResult<unknown>[]>} binding the replies
   */
  #keepOpen(connection, tries, binding) {
    // If the other connections are closed, the lock is released or lost, and `tries` closes this one.
    if (this.#isClosed) return;
    // If a release is on its way, the end of the connection would release the lock first: the release finds nothing.
    tries.give(connection);
    this.#late.push(connection);
    void Promise.all([binding, connection.closed]).then(([settled]) => {
      if (this.#isOver) return;
      // The hold may be bound to this connection, or is bound to it when the server executes the command.
      this.#isUnbound = true;
      const cutOff = settled.find(isCutOff);
      if (cutOff || this.#isBinding) this.#lose(CUT_OFF, cutOff?.reason);
      else void this.#bind();
    });
  }

  #closeAll() {
    this.#isClosed = true;
    this.#own?.close();
    for (const connection of this.#late) connection.close();
  }

  /** Until when the lock is certainly held. */
  get #certain() {
    return this.#binding ? this.#binding.heart.untilOf(this.#binding) : this.#beats.until;
  }

  /**
   * Binds the hold to a named session.
   *
   * @param {{ heart: Heart, id: string, openings: number }} named
   */
  #join({ heart, id, openings }) {
    const { client, target, owner, token } = this.#granted;
    // The cap is unknown until `confirm` asks: after a wait, the client does not know when the hold began.
    const cap = { cap: Infinity, isCapKnown: false };
    const binding = {
      ...{ key: target.keys[0] ?? '', database: client.home, token, heart, ...cap, unbound: undefined },
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

  /** Sets the timer that finds the lock lost when its lease ends. A named session has a timer of its own. */
  #watchEnd() {
    clearTimeout(this.#ending);
    if (this.#isOver || this.#binding || !this.#isBegun) return;
    const left = this.#beats.until - performance.now();
    const end = () => (this.#beats.until <= performance.now() ? this.#lose('its lease ended') : this.#watchEnd());
    this.#ending = timer(end, left);
  }

  get #isOver() {
    return this.#over.signal.aborted;
  }

  /**
   * Marks the lock as lost, and returns the error. A lock that was released before stays released.
   *
   * @param {string} why
   * @param {unknown} [cause]
   */
  #lose(why, cause) {
    const lost = new LockLost(this.resource, why, cause);
    this.#why = this.#lost.aborted ? this.#why : why;
    this.#beats.gone();
    if (!this.#isOver) this.#lost.abort(lost);
    this.#over.abort(OVER);
    this.#stopTimers();
    this.#leave();
    this.#closeAll();
    return lost;
  }

  /** Marks the lock as released, whatever answers still come. */
  #end() {
    this.#beats.release(performance.now());
    this.#over.abort(OVER);
    this.#stopTimers();
  }

  #stopTimers() {
    clearTimeout(this.#ending);
    clearTimeout(this.#keeping);
  }
}

/**
 * Whether a reply did not come, because the connection has ended.
 *
 * @param {PromiseSettledResult<unknown>} reply
 * @returns {reply is PromiseRejectedResult}
 */
function isCutOff(reply) {
  return reply.status === 'rejected' && isUnanswered(reply.reason);
}

exports.Lock = Lock;
