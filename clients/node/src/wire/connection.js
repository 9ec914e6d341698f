'use strict';
/** A connection that nobody else uses, and the one place that reads replies on it. */

const { unlessAborted } = require('../time.js');

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
   * The same, but does not wait for the other replies if one of them is an error.
   *
   * @param {string[][]} commands
   * @param {AbortSignal} [signal] ends the reading
   * @returns {Promise<unknown[]>}
   */
  async exchangeOrFail(commands, signal) {
    return this.#read(Promise.all(commands.map((command) => this.#send(command))), signal);
  }

  /**
   * @param {string} channel
   * @param {AbortSignal} [signal]
   */
  async subscribe(channel, signal) {
    await this.#read(this.#counted(this.#raw.subscribe(channel)), signal);
  }

  /**
   * Sends commands behind those that are unanswered, and closes the connection. The server executes them if it executes
   * the others.
   *
   * @param {string[][]} commands
   */
  leave(commands) {
    for (const command of commands) this.#send(command).catch(() => {});
    // node-redis writes in the next turn.
    setImmediate(() => setImmediate(() => this.close()));
  }

  close() {
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
