'use strict';
/** Connections beside that of the client of the program, made again until the server answers on one. */

const { explained, isHeard, isNoPrimary, mayRepeat } = require('../errors.js');
const { AFTERWARDS, ofConnecting, pauseAfter } = require('../limits.js');
const { Bound, Ending, follow, pause, timer } = require('../time.js');

/**
 * @typedef {import('./clients.js').Client} Client
 * @typedef {import('./connection.js').Connection} Connection
 */

/** The server is silent on a connection. It may still execute a command that was sent, so the connection stays open. */
class Silent extends Error {
  /** @param {Promise<unknown>} replies the unread ones, that never reject */
  constructor(replies) {
    super('the server is silent');
    this.replies = replies;
  }
}

class Tries {
  #client;
  #key;
  #bound;
  /** Made when it is needed: most locks are free. @type {Ending | undefined} */
  #stop;
  #unfollow = () => {};
  /** The open connections. Made with the first one. @type {Set<Connection> | undefined} */
  #open;
  /** The answer to the last probe. @type {import('../time.js').Heard | undefined} */
  #probed;
  /** The client of the program has failed to reach the server, which may be elsewhere now. */
  isSuspect = false;

  /**
   * @param {Client} client
   * @param {string} key
   * @param {import('../time.js').Bound} bound ends the attempts; connections stay open until `end`
   */
  constructor(client, key, bound) {
    this.#client = client;
    this.#key = key;
    this.#bound = bound;
  }

  /**
   * Does something on a connection, and again on a new one if that fails without an answer.
   *
   * @template T
   * @param {(connection: Connection) => Promise<T>} task
   * @param {() => void} [onMessage] see `Wanted`
   * @returns {Promise<T>}
   */
  async run(task, onMessage) {
    const { signal } = this.#stopping();
    for (let tries = 0; ; tries += 1) {
      /** @type {Connection | undefined} */
      let connection;
      try {
        connection = await this.#connect(tries, onMessage, signal);
        return await task(connection);
      } catch (error) {
        const over = connection;
        if (over && error instanceof Silent) error.replies.then(() => this.close(over));
        else if (over) this.close(over);
        signal.throwIfAborted();
        this.#bound.cause = error;
        if (isHeard(error)) this.#bound.heard();
        else if (isNoPrimary(error)) this.#bound.unheard(this.#probed);
        if (!mayRepeat(error)) throw explained(error);
      }
      await pause(pauseAfter(tries), signal);
    }
  }

  /** @param {Connection} connection from now on the new owner's */
  give(connection) {
    this.#open?.delete(connection);
  }

  /**
   * @param {string[][]} [undo] sent first on each connection: the client of the program may be with another server
   * @param {number} [most] how long replicas may keep the reply back
   */
  end(undo, most = 0) {
    this.#unfollow();
    this.#stop?.abort(new Error('ended'));
    for (const connection of this.#open ?? []) {
      if (undo) connection.leave(undo, AFTERWARDS + most);
      else connection.close();
    }
    this.#open = undefined;
  }

  /** No more attempts. Waits for the open replies, which tell what to clean up. */
  endLater() {
    this.#unfollow();
    this.#stop?.abort(new Error('ended'));
    timer(() => this.end(), AFTERWARDS);
  }

  /**
   * @param {number} tries the number of attempts before
   * @param {(() => void) | undefined} onMessage
   * @param {AbortSignal} signal
   */
  async #connect(tries, onMessage, signal) {
    const late = () => new Error('the server did not answer in time', { cause: this.#bound.cause });
    const attempt = new Bound({ ms: ofConnecting(tries) }, signal, late);
    try {
      attempt.signal.throwIfAborted();
      const wanted = { signal: attempt.signal, again: this.isSuspect || tries > 0, onMessage };
      const connection = await this.#client.connect(this.#key, wanted);
      (this.#open ??= new Set()).add(connection);
      if (signal.aborted) this.close(connection);
      signal.throwIfAborted();
      if (wanted.again) await this.#probe(connection, attempt.signal);
      return connection;
    } finally {
      attempt.close();
    }
  }

  /**
   * Asks a server that was silent for an answer. The replies of the handshake do not count: a server that is starting
   * gives them, too, and so does an agent without servers. A server that is no primary any more answers, and then
   * refuses the task.
   *
   * @param {Connection} connection closed if no answer comes
   * @param {AbortSignal} signal
   */
  async #probe(connection, signal) {
    try {
      await connection.exchange([['DLOCK.CHECK', this.#key, '1']], signal);
    } catch (error) {
      if (!isHeard(error)) {
        this.close(connection);
        throw error;
      }
    }
    this.#probed = this.#bound.heard();
  }

  #stopping() {
    const stop = (this.#stop ??= new Ending());
    this.#unfollow();
    this.#unfollow = follow(this.#bound.signal, () => stop.abort(this.#bound.signal.reason));
    return stop;
  }

  /** @param {Connection} connection not closed if it was given away */
  close(connection) {
    if (this.#open?.delete(connection)) connection.close();
  }
}

exports.Tries = Tries;
exports.Silent = Silent;
