'use strict';
/** A connection of this package's own. Only this file reads replies on it. */

const { timer, unlessAborted } = require('../time.js');

/**
 * @typedef {object} Raw a client with one connection, which does not connect again
 * @property {(args: string[]) => Promise<unknown>} send
 * @property {(channel: string) => Promise<unknown>} subscribe only for a client that was made with a listener
 * @property {Promise<void>} closed fulfilled when the connection has ended, from either side
 * @property {() => void} close ends the connection at once
 * @property {string | undefined} at the address of the server
 * @property {number | undefined} database the selected database, as far as is known
 */

/** Closes itself when its user stops waiting for a reply: the next command would get that reply as its answer. */
class Connection {
  #raw;
  #unread = 0;
  #isClosed = false;
  /** Whether the reply to a WAIT is unread. A WAIT ends by itself; a wait in the queue may not. */
  #isForReplicas = false;

  /** @param {Raw} raw */
  constructor(raw) {
    this.#raw = raw;
  }

  /** Fulfilled when the connection has ended, from either side. */
  get closed() {
    return this.#raw.closed;
  }

  /** The address of the server, to be compared with `Client.at`. */
  get at() {
    return this.#raw.at;
  }

  get database() {
    return this.#raw.database;
  }

  /** Whether a reply is awaited. */
  get isUnread() {
    return this.#unread > 0;
  }

  /** Whether a command sent now would get no answer, or would have to wait behind another one. */
  get isSpent() {
    return this.#isClosed || this.isUnread;
  }

  /**
   * Sends commands in one go, and reads all replies even if one of them is an error.
   *
   * @param {string[][]} commands
   * @param {AbortSignal} [signal] ends the wait for the replies, and closes the connection
   * @returns {Promise<unknown[]>}
   */
  async exchange(commands, signal) {
    return valuesOf(await this.settle(commands, signal));
  }

  /**
   * Does the same as `exchange`, and returns errors beside the other replies. Rejects only if `signal` is aborted.
   *
   * @param {string[][]} commands
   * @param {AbortSignal} [signal]
   * @returns {Promise<PromiseSettledResult<unknown>[]>}
   */
  async settle(commands, signal) {
    return this.#read(Promise.allSettled(commands.map((command) => this.#send(command))), signal);
  }

  /**
   * Does the same as `exchange` for commands that end with a WAIT, but rejects at once if one reply is an error.
   *
   * @param {string[][]} commands
   * @returns {Promise<unknown[]>}
   */
  async exchangeForReplicas(commands) {
    this.#isForReplicas = true;
    try {
      return await this.#read(Promise.all(commands.map((command) => this.#send(command))), undefined);
    } finally {
      this.#isForReplicas = false;
    }
  }

  /**
   * @param {string} channel
   * @param {AbortSignal} [signal]
   */
  async subscribe(channel, signal) {
    await this.#read(this.#counted(this.#raw.subscribe(channel)), signal);
  }

  /**
   * Sends commands behind the unanswered ones, and closes the connection. A wait in the queue may end with the
   * connection: if it is granted before that, the server executes these commands, too. A WAIT for replicas must end
   * first, because the server drops the commands behind it if the connection ends during the WAIT.
   *
   * @param {string[][]} commands
   * @param {number} most how long the replies may take, in ms, before the connection is closed
   */
  leave(commands, most) {
    const isAnswered = !this.isUnread || this.#isForReplicas;
    const replies = Promise.allSettled(commands.map((command) => this.#send(command)));
    const close = () => this.close();
    if (isAnswered) {
      void replies.then(close);
      timer(close, most);
      return;
    }
    // node-redis writes commands in the next turn of the event loop: the connection is closed after that.
    setImmediate(() => setImmediate(close));
  }

  close() {
    this.#isClosed = true;
    this.#raw.close();
  }

  /** @param {string[]} command */
  #send(command) {
    return this.#counted(this.#raw.send(command));
  }

  /**
   * Counts a reply as unread until it comes.
   *
   * @template T
   * @param {Promise<T>} reply
   */
  #counted(reply) {
    this.#unread += 1;
    const read = () => void (this.#unread -= 1);
    reply.then(read, read);
    return reply;
  }

  /**
   * Waits for replies. If one is still unread when the wait fails or is aborted, the connection is closed.
   *
   * @template T
   * @param {Promise<T>} replies
   * @param {AbortSignal | undefined} signal
   */
  async #read(replies, signal) {
    try {
      return await unlessAborted(replies, signal);
    } catch (error) {
      if (this.isUnread) this.close();
      throw error;
    }
  }
}

/**
 * Returns the replies, or throws the first error among them.
 *
 * @param {PromiseSettledResult<unknown>[]} replies
 */
function valuesOf(replies) {
  return replies.map((reply) => {
    if (reply.status === 'rejected') throw reply.reason;
    return reply.value;
  });
}

/**
 * Waits for a promise, and passes on its error.
 *
 * @param {Promise<unknown>} promise
 * @param {() => void} otherwise what to do if it rejects
 */
async function orElse(promise, otherwise) {
  try {
    await promise;
  } catch (error) {
    otherwise();
    throw error;
  }
}

exports.Connection = Connection;
exports.orElse = orElse;
exports.valuesOf = valuesOf;
