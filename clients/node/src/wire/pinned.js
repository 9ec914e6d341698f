'use strict';
/** A connection to the node of a cluster that has a key, kept for the commands without a key. */

const { soon } = require('./ask.js');
const { Tries } = require('./tries.js');
const { explained, mayRepeat } = require('../errors.js');
const { unlessAborted } = require('../time.js');

/** @typedef {import('./connection.js').Connection} Connection */

class Pinned {
  #client;
  #key;
  /** @type {Connection | undefined} */
  #connection;

  /**
   * @param {import('./clients.js').Client} client
   * @param {() => string} key that a new connection looks for
   */
  constructor(client, key) {
    this.#client = client;
    this.#key = key;
  }

  /**
   * Sends a command to the node. If the connection fails, sends it on a new one, which may lead to another node.
   *
   * @param {string[]} command
   * @param {import('../time.js').Bound} bound
   * @param {number} silence after this many ms without an answer, the connection counts as failed
   * @returns {Promise<unknown>}
   */
  async send(command, bound, silence) {
    const before = this.#connection;
    const replies = before && (await soon(before.exchange([command]), bound, silence));
    if (replies) return replies[0];
    this.close();
    const tries = new Tries(this.#client, this.#key(), bound);
    tries.isSuspect = before !== undefined;
    try {
      const { reply, refusal } = await unlessAborted(tries.run((made) => this.#first(made, command, bound)), bound.signal);
      if (this.#connection) tries.give(this.#connection);
      if (refusal) throw explained(refusal);
      return reply;
    } finally {
      tries.end();
    }
  }

  /**
   * Sends the first command on a connection, which is kept if the server answers.
   *
   * @param {Connection} made
   * @param {string[]} command
   * @param {import('../time.js').Bound} bound
   * @returns {Promise<{ reply?: unknown, refusal?: unknown }>}
   */
  async #first(made, command, bound) {
    try {
      const [reply] = await made.exchange([command], bound.signal);
      this.#connection = made;
      return { reply };
    } catch (error) {
      if (mayRepeat(error)) throw error;
      this.#connection = made;
      return { refusal: error };
    }
  }

  close() {
    this.#connection?.close();
    this.#connection = undefined;
  }
}

exports.Pinned = Pinned;
