'use strict';
/**
 * Acquires on connections of one's own. A wait is one BLOCK. If its connection breaks or becomes silent, it is sent
 * again on a new one with the same REQUEST, and keeps its place if the server still has it.
 */

const { Silent } = require('./attempts.js');
const { soon } = require('./ask.js');
const { firstLease } = require('./options.js');
const { pause } = require('./time.js');

/**
 * @typedef {import('./clients.js').Client} Client
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
 * @property {number} until when replicas must have acknowledged
 * @property {import('./time.js').Bound} bound
 * @property {import('./heart.js').Heart | undefined} heart of its named session
 *
 * @typedef {object} Grant
 * @property {number} token
 * @property {number | undefined} slot
 * @property {number} sent when the command was sent
 * @property {Connection} [connection] the one that waited, still open
 * @property {number} acknowledged by how many replicas; 0 if they are not asked
 * @property {boolean} [isLate] connections may still get the same grant
 */

/** After this many ms, a wait asks whether the server is still there, and how long that may take. */
const PROBE = 5000;
const PROBE_ANSWER = 1000;
/** Between two requests of a wait that has no connection of its own, in ms. */
const AGAIN = 100;
/** The time that replicas may take even if the wait is over, in ms. */
const LEAST_FOR_REPLICAS = 50;

/**
 * @param {Request} request
 * @param {Connection} connection
 * @returns {Promise<Grant | null>} null: not granted in time
 */
async function waitOn(request, connection) {
  const { target, owner, command, terms, end, until } = request;
  const sent = performance.now();
  const block = blockUntil(end, sent);
  // Without a signal: what comes after the end of the request is heard out, so that it can be undone.
  const blocking = async () =>
    grantedBy((await alive(request, connection, connection.exchange([[...command, ...block]])))[0]);
  if (terms.replicas === 0) {
    const granted = await blocking();
    return granted && { ...granted, sent, connection, acknowledged: 0 };
  }
  const atOnce = await alive(request, connection, connection.exchangeOrFail([command, waitFor(terms, until)]));
  const free = grantedBy(atOnce[0]);
  if (free) return { ...free, sent, connection, acknowledged: Number(atOnce[1]) };
  const granted = block.length === 0 ? null : await blocking();
  if (!granted) return null;
  // Redis before 7.0.12 does not count a grant to a blocked connection as its write, so that WAIT would not wait for
  // it. A renewal is such a write.
  const renewals = target.renew(owner, granted.token, firstLease(terms));
  const replies = await connection.exchangeOrFail([...renewals, waitFor(terms, until)], request.bound.signal);
  return { ...granted, sent, connection, acknowledged: Number(replies.at(-1)) };
}

/**
 * Waits without a place in the queue: no connection of one's own would be the same user's, so the client asks again and
 * again.
 *
 * @param {Request} request
 * @returns {Promise<Grant | null>} null: not granted in time
 */
async function askAgain({ client, target, command, end, bound }) {
  for (;;) {
    const sent = performance.now();
    const reply = await soon(client.send(command, target.keys[0] ?? '').then((reply) => ({ reply })), bound);
    const granted = reply ? grantedBy(reply.reply) : null;
    if (granted) return { ...granted, sent, acknowledged: 0 };
    const left = end - performance.now();
    if (left <= 0) return null;
    await pause(Math.min(AGAIN, left), bound.signal);
  }
}

/**
 * The token, and with SLOT the number.
 *
 * @param {unknown} reply to an acquiring command
 * @returns {{ token: number, slot: number | undefined } | null}
 */
function grantedBy(reply) {
  if (reply === null) return null;
  if (!Array.isArray(reply)) return { token: Number(reply), slot: undefined };
  const [token, slot] = reply;
  return { token: Number(token), slot: slot === null ? undefined : Number(slot) };
}

/**
 * The replies. Rejects with `Silent` if the server is no longer there.
 *
 * @param {Request} request
 * @param {Connection} connection
 * @param {Promise<unknown[]>} replies
 */
async function alive(request, connection, replies) {
  const { terms, bound } = request;
  const done = new AbortController();
  const stop = () => done.abort();
  const over = replies.then(stop, stop);
  while (!done.signal.aborted) {
    await pause(Math.min(PROBE, terms.outage / 3), done.signal).catch(() => {});
    const isUnknown = !done.signal.aborted && !bound.signal.aborted && !(await isThere(request, connection));
    if (isUnknown && !done.signal.aborted) throw new Silent(over);
  }
  const all = await replies;
  bound.heard();
  return all;
}

/**
 * Whether the server answers to which a connection leads.
 *
 * @param {Request} request
 * @param {Connection} connection
 */
async function isThere({ client, target, bound }, connection) {
  const [key = ''] = target.keys;
  if (client.at(key) !== connection.at) return false;
  const probe = client.send(['DLOCK.CHECK', key, '1'], key).then(() => true);
  return (await soon(probe, bound, PROBE_ANSWER).catch(() => true)) ?? false;
}

/**
 * @param {{ replicas: number, replicasTimeout: number }} terms
 * @param {number} [until]
 */
function waitFor({ replicas, replicasTimeout }, until = Infinity) {
  const left = Math.max(until - performance.now(), LEAST_FOR_REPLICAS);
  return ['WAIT', String(replicas), String(Math.ceil(Math.min(replicasTimeout, left)))];
}

/**
 * @param {number} end
 * @param {number} now
 */
function blockUntil(end, now) {
  if (end === Infinity) return ['BLOCK', '0']; // forever
  return end > now ? ['BLOCK', String(Math.ceil(end - now))] : [];
}

module.exports = { askAgain, grantedBy, waitFor, waitOn };
