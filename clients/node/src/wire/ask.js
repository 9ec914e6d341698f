'use strict';
/** Sends commands that do no harm if they are executed twice, until a server answers. */

const { valuesOf } = require('./connection.js');
const { Tries } = require('./tries.js');
const { explained, isHeard, isOneExecuted, mayRepeat } = require('../errors.js');
const { SILENCE } = require('../limits.js');
const { follow, unlessAborted } = require('../time.js');

/**
 * @typedef {import('./clients.js').Client} Client
 *
 * @typedef {object} Answer
 * @property {unknown[]} replies
 * @property {boolean} repeated another copy of the commands may have been executed: no error says that it was not
 */

/**
 * Sends commands on the client of the program. If that is silent or broken, on connections of this package as well: the
 * first answer counts.
 *
 * @param {Client} client
 * @param {string[][]} commands each with its key behind its name
 * @param {import('../time.js').Bound} bound
 * @param {number} [silence] after how many ms without an answer the client counts as silent
 * @returns {Promise<Answer>}
 */
async function ask(client, commands, bound, silence = SILENCE) {
  const key = commands[0]?.[1] ?? '';
  const before = client.repeats();
  const sends = commands.map((command) => client.send(command, command[1] ?? key));
  const shared = Promise.all(sends);
  // A client whose connection is lost sends the commands again on a new one.
  const isResent = () => client.repeats() !== before;
  const replies = await soon(shared, bound, silence);
  if (replies) return { replies, repeated: isResent() };
  const tries = new Tries(client, key, bound);
  tries.isSuspect = true;
  /** How many copies may be executed, including the one that is answered, but not what the client sends again itself. */
  let copies = 1;
  /** Whether the copy of the client is refused, so that the client repeats others than these commands. */
  let isRefused = false;
  void Promise.allSettled(sends).then((replies) => {
    isRefused = !isResent() && !isOneExecuted(replies);
    if (isRefused) copies -= 1;
  });
  const send = async (/** @type {import('./connection.js').Connection} */ connection) => {
    copies += 1;
    const replies = await connection.settle(commands, bound.signal);
    if (!isOneExecuted(replies)) copies -= 1;
    return valuesOf(replies);
  };
  try {
    const replies = await unlessAborted(Promise.race([tries.run(send), orNever(shared)]), bound.signal);
    return { replies, repeated: copies > 1 || (!isRefused && isResent()) };
  } finally {
    tries.end();
  }
}

/**
 * Returns the answer if it comes within `ms`, else undefined. Rejects if the server has refused the command for good.
 *
 * @template T
 * @param {Promise<T>} answer
 * @param {import('../time.js').Bound} bound
 * @param {number} [ms]
 * @returns {Promise<T | undefined>}
 */
async function soon(answer, bound, ms = SILENCE) {
  /** @type {NodeJS.Timeout | undefined} */
  let timeout;
  let stop = () => {};
  /** @type {Promise<T | undefined>} */
  const inTime = new Promise((resolve, reject) => {
    stop = follow(bound.signal, () => reject(bound.signal.reason));
    answer.then(resolve, reject);
    // Answers that arrived while the program was busy are read before the immediate.
    timeout = setTimeout(() => setImmediate(resolve, undefined), ms);
  });
  try {
    const result = await inTime;
    if (result !== undefined) bound.heard();
    return result;
  } catch (error) {
    bound.signal.throwIfAborted();
    if (isHeard(error)) bound.heard();
    if (!mayRepeat(error)) throw explained(error);
    bound.cause = error;
    return undefined;
  } finally {
    stop();
    clearTimeout(timeout);
  }
}

/**
 * Returns a promise that fails only with an error of the server that is final, and otherwise may never settle.
 *
 * @template T
 * @param {Promise<T>} promise
 * @returns {Promise<T>}
 */
function orNever(promise) {
  return promise.catch((error) => (mayRepeat(error) ? new Promise(() => {}) : Promise.reject(explained(error))));
}

module.exports = { ask, orNever, soon };
