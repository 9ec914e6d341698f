/** Standing in line: one BLOCK on a connection of its own, asked again with the same REQUEST if that breaks. */

import { mayRepeat } from './errors.js';

/**
 * @typedef {import('./connection.js').Client} Client
 * @typedef {import('./connection.js').Connection} Connection
 *
 * @typedef {object} Grant
 * @property {number} token
 * @property {number} sent when the command was sent, by performance.now()
 * @property {Connection} connection the one that waited, still open
 */

/**
 * Waits in line until `end` (by performance.now(), may be Infinity). Rejects with the signal's reason when that is
 * aborted; the connection is closed then, and with it the place in line.
 *
 * @param {Client} client
 * @param {string[]} command without BLOCK, with a REQUEST
 * @param {number} end
 * @param {AbortSignal | undefined} signal
 * @returns {Promise<Grant | null>} null: not granted in time
 */
export async function standInLine(client, command, end, signal) {
  for (let pause = 25; ; pause = Math.min(pause * 2, 1000)) {
    try {
      return await waitOnce(client, command, end, signal);
    } catch (error) {
      signal?.throwIfAborted();
      if (!mayRepeat(error) || performance.now() + pause >= end) throw error;
    }
    await unlessAborted(new Promise((resolve) => setTimeout(resolve, pause)), signal);
  }
}

/**
 * @param {Client} client
 * @param {string[]} command
 * @param {number} end
 * @param {AbortSignal | undefined} signal
 * @returns {Promise<Grant | null>}
 */
async function waitOnce(client, command, end, signal) {
  const connecting = client.connect();
  /** @type {Connection | undefined} */
  let connection;
  try {
    connection = await unlessAborted(connecting, signal);
    const sent = performance.now();
    const reply = await unlessAborted(connection.send([...command, ...blockUntil(end, sent)]), signal);
    if (reply !== null) return { token: Number(reply), sent, connection };
    connection.close();
    return null;
  } catch (error) {
    connecting.then((late) => late.close(), () => {});
    if (connection) await connection.closed;
    throw error;
  }
}

/**
 * @param {number} end
 * @param {number} now
 */
function blockUntil(end, now) {
  if (end === Infinity) return ['BLOCK', '0']; // for ever
  return end > now ? ['BLOCK', String(Math.ceil(end - now))] : [];
}

/**
 * The promise, or the signal's reason if that comes first.
 *
 * @template T
 * @param {Promise<T>} promise
 * @param {AbortSignal | undefined} signal
 * @returns {Promise<T>}
 */
export async function unlessAborted(promise, signal) {
  if (!signal) return promise;
  /** @type {() => void} */
  let stop = () => {};
  const aborted = new Promise((_, reject) => {
    stop = () => reject(signal.reason);
    signal.addEventListener('abort', stop, { once: true });
    if (signal.aborted) stop();
  });
  promise.catch(() => {}); // it may fail after nobody listens
  try {
    return /** @type {T} */ (await Promise.race([promise, aborted]));
  } finally {
    signal.removeEventListener('abort', stop);
  }
}
