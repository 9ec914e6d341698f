'use strict';
/**
 * Acquires on connections of the package's own. A wait is one command with BLOCK. If its connection breaks or becomes
 * silent, the command is sent again on a new one with the same REQUEST. The wait keeps its place if the server still
 * has the first command in the queue. With SESSION, the command is sent again as another owner, because the first one
 * binds the hold to its connection whenever the server executes it.
 */

const { Silent } = require('./wire/tries.js');
const { soon } = require('./wire/ask.js');
const { isNotExecuted, isUnanswered, isWrongType } = require('./errors.js');
const { AGAIN, PROBE_ANSWER, UNNEEDED, ofReplicas, untilProbe } = require('./limits.js');
const { firstLease } = require('./options.js');
const { Ending, pause, timer } = require('./time.js');

/**
 * @typedef {import('./wire/clients.js').Client} Client
 * @typedef {import('./wire/connection.js').Connection} Connection
 * @typedef {import('./target.js').Target} Target
 *
 * @typedef {object} Request
 * @property {Client} client
 * @property {Target} target
 * @property {string} owner
 * @property {string[]} former the owners before, a copy of whose command may still be executed
 * @property {string[]} command without BLOCK, with a REQUEST
 * @property {import('./options.js').Terms} terms
 * @property {import('./time.js').Bound} bound
 * @property {import('./heart.js').Heart | undefined} heart of its named session
 * @property {import('./attempt.js').Attempt} attempt
 * @property {import('./attempt.js').Step} step the next step of the attempt
 *
 * @typedef {{ granted: ReturnType<typeof grantedBy>, foreign?: unknown }} Answer `foreign`: the error that the key has
 *   another type, because a program without dlock has the lock
 *
 * @typedef {object} Grant
 * @property {number} token
 * @property {number | undefined} slot
 * @property {Connection} [connection] the one that the grant came on, still open
 * @property {number} acknowledged the number of replicas that acknowledged the grant; 0 if they are not asked
 * @property {boolean} [isLate] other connections may still get the same grant
 * @property {import('./attempt.js').Copy} [copy] the granted copy, if the attempt does not know of the grant yet
 */

/**
 * Acquires on one connection: takes the steps of the attempt until one ends it.
 *
 * @param {Request} request
 * @param {Connection} connection
 * @returns {Promise<Grant | null | undefined>} null: refused; undefined: the request goes on, on another connection
 */
async function waitOn(request, connection) {
  const { attempt, former, target, terms } = request;
  // Sent ahead of the command, which a hold of a former owner would be in the way of.
  if (former.length > 0) void connection.settle(target.releaseAll(...former));
  while (request.step.what !== 'refused') {
    const { what, block = 0 } = request.step;
    const isRepeat = attempt.mayBeGranted;
    const copy = attempt.sends(performance.now());
    let isGranted = false;
    try {
      const blocks = what === 'wait' ? ['BLOCK', String(block)] : [];
      const { granted, foreign, acknowledged } = await asked(request, connection, blocks, isRepeat);
      const now = performance.now();
      if (granted) {
        request.step = attempt.granted(now, copy);
        isGranted = true;
        return { ...granted, connection, acknowledged: await acknowledged() };
      }
      if (foreign) await refusedBy(foreign, request, copy);
      else request.step = attempt.nil(now, copy, what === 'wait');
      // A WAIT is unread. The server would not run the next command on this connection before the WAIT ends.
      if (connection.isSpent && request.step.what !== 'refused') return undefined;
    } catch (error) {
      const now = performance.now();
      if (isGranted) request.step = attempt.lost(now);
      else if (terms.session && isUnanswered(error)) request.step = attempt.orphaned(now);
      else request.step = isNotExecuted(error) ? attempt.refused(now, copy) : attempt.cut(now);
      throw error;
    }
  }
  return null;
}

/**
 * Sends the command, and lets replicas acknowledge the grant.
 *
 * @param {Request} request
 * @param {Connection} connection
 * @param {string[]} block
 * @param {boolean} isRepeat a copy before may have been granted
 * @returns {Promise<Answer & { acknowledged: () => Promise<number> }>}
 */
async function asked(request, connection, block, isRepeat) {
  const { command, terms } = request;
  // No signal ends the reading: a grant that comes after the end of the request must be read to be undone.
  if (terms.replicas === 0 || block.length > 0 || isRepeat) {
    const replies = alive(request, connection, connection.exchange([[...command, ...block]]));
    const answer = await answerOf(replies.then(([reply]) => reply));
    const { granted } = answer;
    if (terms.replicas === 0 || !granted) return { ...answer, acknowledged: async () => 0 };
    return { ...answer, acknowledged: () => renewedOn(request, connection, granted.token) };
  }
  // The commands are both sent before a reply is awaited, to save a round trip.
  const first = alive(request, connection, connection.exchange([command]));
  const rest = alive(request, connection, connection.exchangeForReplicas([waitFor(request)]));
  rest.catch(() => {});
  const answer = await answerOf(first.then(([reply]) => reply));
  // After a refusal nobody needs the answer about replicas, but an unread WAIT spends the connection.
  if (!answer.granted) await Promise.race([rest, new Promise((resolve) => timer(() => resolve(undefined), UNNEEDED))]);
  return { ...answer, acknowledged: async () => Number((await rest)[0]) };
}

/**
 * Waits for the answer to an acquiring command. If the key has another type, a program without dlock has the lock.
 *
 * @param {Promise<unknown>} reply
 * @returns {Promise<Answer>}
 */
async function answerOf(reply) {
  try {
    return { granted: grantedBy(await reply) };
  } catch (foreign) {
    if (!isWrongType(foreign)) throw foreign;
    return { granted: null, foreign };
  }
}

/**
 * Pauses before the next command: a program without dlock has the lock, and there is no queue.
 *
 * @param {unknown} foreign the error that says so
 * @param {Request} request
 * @param {import('./attempt.js').Copy} copy
 */
async function refusedBy(foreign, request, copy) {
  const { attempt, bound } = request;
  bound.heard();
  bound.cause = foreign;
  request.step = attempt.nil(performance.now(), copy);
  if (request.step.what === 'refused') return;
  await pause(Math.min(AGAIN, request.step.block || AGAIN), bound.signal);
  request.step = attempt.nil(performance.now(), copy);
}

/**
 * Renews a grant, then asks how many replicas acknowledge it. WAIT waits only for writes of its own connection. The
 * renewal is one; a grant to a copy on another connection is not, and neither is, on Redis before 7.0.12, a grant after
 * a wait.
 *
 * @param {Request} request
 * @param {Connection} connection
 * @param {number} token
 */
async function renewedOn(request, connection, token) {
  const { attempt, target, owner, terms } = request;
  const renewals = target.renew(owner, token, firstLease(terms));
  const renewal = attempt.renews(performance.now());
  const replies = await connection.exchangeForReplicas([...renewals, waitFor(request)]);
  const acknowledged = Number(replies.pop());
  const isWhole = replies.every((reply) => Number(reply) > 0);
  request.step = attempt.renewed(performance.now(), renewal, isWhole);
  return acknowledged;
}

/**
 * Waits without a place in the queue: the program's client asks again and again. Needed if a connection of the
 * package's own would have another user or database than that client.
 *
 * @param {Request} request
 * @returns {Promise<Grant | null>} null: not granted in time
 */
async function askAgain(request) {
  const { client, target, command, bound, attempt } = request;
  for (;;) {
    const copy = attempt.sends(performance.now());
    const answer = await soon(answerOf(client.send(command, target.keys[0] ?? '')), bound);
    const now = performance.now();
    if (answer?.granted) {
      request.step = attempt.granted(now, copy);
      return { ...answer.granted, acknowledged: 0 };
    }
    request.step = answer ? attempt.nil(now, copy) : attempt.cut(now);
    if (request.step.what !== 'wait' && request.step.what !== 'try') return null;
    await pause(Math.min(AGAIN, request.step.block || AGAIN), bound.signal);
  }
}

/**
 * Reads the token, and with SLOT the number. null: not granted.
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
 * Returns the replies. Asks from time to time whether the server is still there; if not, rejects with `Silent`.
 *
 * @param {Request} request
 * @param {Connection} connection
 * @param {Promise<unknown[]>} replies
 */
async function alive(request, connection, replies) {
  const { terms, bound } = request;
  const done = new Ending();
  const stop = () => done.abort(undefined);
  const over = replies.then(stop, stop);
  while (!done.signal.aborted) {
    await pause(untilProbe(terms.outage), done.signal).catch(() => {});
    const isUnknown = !done.signal.aborted && !bound.signal.aborted && !(await isThere(request, connection));
    if (isUnknown && !done.signal.aborted) throw new Silent(over);
  }
  const all = await replies;
  bound.heard();
  return all;
}

/**
 * Returns whether a connection still leads to the server of the program's client, and that server answers it.
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
 * Returns the WAIT for the replicas of a request.
 *
 * @param {{ terms: { replicas: number, replicasTimeout: number }, bound?: import('./time.js').Bound }} request
 */
function waitFor({ terms: { replicas, replicasTimeout }, bound }) {
  return ['WAIT', String(replicas), String(ofReplicas(replicasTimeout, bound?.left ?? Infinity))];
}

module.exports = { answerOf, askAgain, refusedBy, waitFor, waitOn };
