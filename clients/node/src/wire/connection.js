'use strict';
/** A connection that nobody else uses, and the one place that reads replies on it. */

const { timer, unlessAborted } = require('../time.js');

/**
 * @typedef {object} Raw a client with one connection, which it does not make again
 * @property {(args: string[]) => Promise<unknown>} send
 * @property {(channel: string) => Promise<unknown>} subscribe if it was made with a listener
 * @property {Promise<void>} closed fulfilled when it has ended, from whichever side
 * @property {() => void} close at once
 * @property {string | undefined} at where it leads
 * @property {number | undefined} database that it has selected, as far as is known
 */

/** Closed whenever its user stops listening to a reply: the next reply on it would not be the answer. */
class Connection {
  #raw;
  #unread = 0;
  #isClosed = false;
  /** Whether WAIT is unread, which ends by itself. A wait in the queue does not. */
  #isForReplicas = false;

  /** @param {Raw} raw */
  constructor(raw) {
    this.#raw = raw;
  }

  /** Fulfilled when it has ended, from whichever side. */
  get closed() {
    return this.#raw.closed;
  }

  /** The address of the server, for a comparison. */
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

  /** Whether the next command would have no answer, or not at once. */
  get isSpent() {
    return this.#isClosed || this.isUnread;
  }

  /**
   * Sends commands in one go, and reads all replies even if one of them is an error.
   *
   * @param {string[][]} commands
   * @param {AbortSignal} [signal] ends the reading
   * @returns {Promise<unknown[]>}
   */
  async exchange(commands, signal) {
    const replies = await this.#read(Promise.allSettled(commands.map((command) => this.#send(command))), signal);
    return replies.map((reply) => {
      if (reply.status === 'rejected') throw reply.reason;
      return reply.value;
    });
  }

  /**
   * As `exchange`, with a WAIT at the end, but does not wait for the other replies if one of them is an error.
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
   * Sends commands behind those that are unanswered, and closes the connection. A wait in the queue may end with the
   * connection: if it was granted before, the server executes these commands, too. A WAIT for replicas must end before
   * the connection, or the commands behind it are lost.
   *
   * @param {string[][]} commands
   * @param {number} most how long the replies may take
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
    // node-redis writes in the next turn.
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
