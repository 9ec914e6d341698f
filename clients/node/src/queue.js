'use strict';
/** Waits in the server's queue: one BLOCK on a connection of its own, repeated with the same REQUEST if that breaks. */

const { NoAnswer, explained, isMoving, mayRepeat } = require('./errors.js');
const { unlessAborted } = require('./time.js');

/**
 * @typedef {import('./connection.js').Client} Client
 * @typedef {import('./connection.js').Connection} Connection
 * @typedef {import('./target.js').Target} Target
 *
 * @typedef {object} Request
 * @property {Client} client
 * @property {Target} target
 * @property {string} owner
 * @property {string[]} command without BLOCK, with a REQUEST
 * @property {import('./options.js').Terms} terms
 * @property {number} end when waiting ends, may be Infinity
 * @property {AbortSignal | undefined} signal
 *
 * @typedef {object} Grant
 * @property {number} token
 * @property {number} sent when the command was sent
 * @property {Connection} connection the one that waited, still open
 * @property {number} acknowledged by how many replicas; 0 if they are not asked
 */

/**
 * Waits until the request's end. Rejects with the signal's reason when that is aborted; the connection is closed then,
 * and with it the place in the queue. An outage counts as waiting.
 *
 * @param {Request} request
 * @returns {Promise<Grant | null>} null: not granted in time
 */
async function queue(request) {
  const { client, target, end, signal } = request;
  for (let pause = 25; ; pause = Math.min(pause * 2, 1000)) {
    try {
      return await waitOnce(request);
    } catch (error) {
      signal?.throwIfAborted();
      if (!isMoving(error) && !mayRepeat(error)) throw explained(error);
      if (performance.now() + pause >= end) throw new NoAnswer(target.resource, error);
      if (isMoving(error)) await unlessAborted(client.find(target.keys[0] ?? '').catch(() => {}), signal);
    }
    await unlessAborted(new Promise((resolve) => setTimeout(resolve, pause)), signal);
  }
}

/**
 * @param {Request} request
 * @returns {Promise<Grant | null>}
 */
async function waitOnce({ client, target, owner, command, terms, end, signal }) {
  const connecting = client.connect(target.keys[0] ?? '');
  /** @type {Connection | undefined} */
  let connection;
  try {
    connection = await unlessAborted(connecting, signal);
    const sent = performance.now();
    const reply = await unlessAborted(ask(connection, { target, owner, command, terms, end, sent }), signal);
    if (reply) return { ...reply, sent, connection };
    connection.close();
    return null;
  } catch (error) {
    connecting.then((late) => late.close(), () => {});
    if (connection) await connection.closed;
    throw error;
  }
}

/**
 * @param {Connection} connection
 * @param {Pick<Request, 'target' | 'owner' | 'command' | 'terms' | 'end'> & { sent: number }} request
 * @returns {Promise<{ token: number, acknowledged: number } | null>}
 */
async function ask({ send }, { target, owner, command, terms, end, sent }) {
  const block = blockUntil(end, sent);
  if (terms.replicas === 0) {
    const reply = await send([...command, ...block]);
    return reply === null ? null : { token: Number(reply), acknowledged: 0 };
  }
  const wait = waitFor(terms);
  const [free, atOnce] = await Promise.all([send(command), send(wait)]);
  if (free !== null) return { token: Number(free), acknowledged: Number(atOnce) };
  const reply = block.length === 0 ? null : await send([...command, ...block]);
  if (reply === null) return null;
  // Redis before 7.0.12 does not count a grant to a blocked connection as its write, so that WAIT would not wait for
  // it. A renewal is such a write.
  const renewals = target.renew(owner, Number(reply), terms.lease).map((renewal) => send(renewal));
  const [acknowledged] = (await Promise.all([...renewals, send(wait)])).slice(-1);
  return { token: Number(reply), acknowledged: Number(acknowledged) };
}

/** @param {{ replicas: number, replicasTimeout: number }} terms */
function waitFor({ replicas, replicasTimeout }) {
  return ['WAIT', String(replicas), String(replicasTimeout)];
}

/**
 * @param {number} end
 * @param {number} now
 */
function blockUntil(end, now) {
  if (end === Infinity) return ['BLOCK', '0']; // forever
  return end > now ? ['BLOCK', String(Math.ceil(end - now))] : [];
}

module.exports = { queue, waitFor };
