'use strict';
/** The time limits of every step, in ms. Pure: what is left comes in as an argument. */

/** How long after the end of a wait the last answer of the server may come. */
const GRACE = 150;
/** How late `WAIT` may end: a server looks ten times a second (`hz`) which waits are over. */
const ENDS_LATE = 100;
/** After this time without an answer on the program's client, connections of this package are tried as well. */
const SILENCE = 300;
/** How long a reply is awaited that only tells what to clean up, and how long cleaning up may take. */
const AFTERWARDS = 3000;
/** How late the server may see that a connection has ended: on the same machine, and at most. */
const SEES_AN_END = [20, 1000];
/** The pause after a grant could not be confirmed, or a node of a cluster could not be reached. */
const PAUSE = 25;
/** How long a refusal waits for the answer about replicas, which nobody needs. A connection that needs longer is closed. */
const UNNEEDED = 20;
/** The pause between two requests of a wait that has no connection of its own. */
const AGAIN = 100;
/** How long the server may take to say whether it is still there. */
const PROBE_ANSWER = 1000;
/** How long opening and closing a session look for a server. */
const SESSION = 1150;
/** How long a Sentinel may take before the next one is asked. */
const SENTINEL = { connect: 1000, answer: 300 };

/**
 * The limits of an acquisition: `bound` is when it settles whatever happens, `attempt` what it may send until then.
 *
 * @param {{ wait: number, answer: number, outage: number }} terms
 * @returns {{ bound: { ms?: number, silence?: number }, attempt: { limit: number | 'try' | 'none', answer: number } }}
 */
function ofAcquisition({ wait, answer, outage }) {
  if (wait === Infinity) return { bound: { silence: outage }, attempt: { limit: 'none', answer } };
  return { bound: { ms: (wait || answer) + GRACE }, attempt: { limit: wait || 'try', answer } };
}

/**
 * How long an attempt to connect may take.
 *
 * @param {number} tries before
 */
function ofConnecting(tries) {
  return Math.min(1000 * 2 ** tries, 8000);
}

/**
 * The pause before the next attempt to connect.
 *
 * @param {number} tries before
 */
function pauseAfter(tries) {
  return Math.min(25 * 2 ** tries, 250);
}

/**
 * After how long a wait asks whether the server is still there.
 *
 * @param {number} outage
 */
function untilProbe(outage) {
  return Math.min(5000, outage / 3);
}

/**
 * How long replicas may take to acknowledge a grant: at least 50 ms, even if the wait is over.
 *
 * @param {number} replicasTimeout
 * @param {number} left until the acquisition settles
 */
function ofReplicas(replicasTimeout, left) {
  return Math.ceil(Math.min(replicasTimeout, Math.max(left - GRACE - ENDS_LATE, 50)));
}

/**
 * How long a renewal may take, with the replicas that acknowledge it.
 *
 * @param {{ answer: number, replicas: number, replicasTimeout: number }} terms
 */
function ofRenewal({ answer, replicas, replicasTimeout }) {
  return answer + (replicas > 0 ? replicasTimeout : 0);
}

/**
 * How long a session's connection may take to answer, when it is asked after a third of the lease. Half of the lease is
 * then left to bind the lock to another connection.
 *
 * @param {number} answer
 * @param {number} lease
 */
function ofLook(answer, lease) {
  return Math.min(answer, lease / 6);
}

/**
 * How long the last renewal of a lock waits for earlier ones without an answer: the server must execute it after them.
 *
 * @param {number} left of the lock, if it is not renewed
 */
function ofLateRenewals(left) {
  return Math.min(Math.max(...SEES_AN_END), left / 2);
}

/**
 * How long an exchange of a session may take.
 *
 * @param {number} timeout
 * @param {number} left until it is lost
 */
function ofHeartbeat(timeout, left) {
  const part = Math.max(100, Math.min(2000, timeout / 6));
  return Math.max(1, Math.min(part, left));
}

module.exports = {
  ...{ AFTERWARDS, AGAIN, GRACE, PAUSE, PROBE_ANSWER, SEES_AN_END, SENTINEL, SESSION, SILENCE, UNNEEDED },
  ...{ ofAcquisition, ofConnecting, ofHeartbeat, ofLateRenewals, ofLook, ofRenewal, ofReplicas },
  ...{ pauseAfter, untilProbe },
};
