'use strict';
/**
 * At most one run in each period, on all machines together. The lock is the memory of the run: it stays for a part of
 * the period, counted from the grant. No clock of a machine is read, only the server's.
 */

const { NoAnswer, NotGranted } = require('./errors.js');
const { isCount } = require('./options.js');
const { pause } = require('./time.js');

/**
 * @typedef {import('./index.js').LockOptions} LockOptions
 * @typedef {import('./hold.js').Lock} Lock
 */

/** The shortest period, in ms. A start takes a moment. */
const SHORTEST = 1000;
/** The pause between two attempts to reach the server after the routine, in ms. */
const PAUSE = 200;

/**
 * How long the lock of a run stays: nine tenths of the period. The next start may come early by the rest: clocks
 * differ, the last start was late on a busy machine, or the day had 23 hours.
 *
 * @param {unknown} period ms
 */
function keptFor(period) {
  if (!isCount(period, SHORTEST)) throw new RangeError('period is a whole number of milliseconds, 1000 or more');
  return Math.floor(/** @type {number} */ (period) / 10) * 9;
}

/**
 * A run that counts even if it fails, or dies with its program.
 *
 * @param {(options: LockOptions) => Promise<Lock>} acquire
 * @param {number} stays
 * @param {(lock: Lock) => Promise<unknown>} run keeps the lock meanwhile, and releases it
 * @returns {Promise<boolean>} whether it ran
 */
async function onceAtAll(acquire, stays, run) {
  const lock = await unlessTaken(acquire({ atLeast: stays }));
  if (lock) await run(lock);
  return lock !== null;
}

/**
 * A run that counts only if it succeeds.
 *
 * @param {(options: LockOptions) => Promise<Lock>} acquire
 * @param {number} stays
 * @param {number} lease while it runs
 * @param {(lock: Lock) => Promise<unknown>} run keeps the lock meanwhile. Rejects if the lock was lost
 * @returns {Promise<boolean>} whether it ran
 */
async function onceInSuccess(acquire, stays, lease, run) {
  // The grant shows that the server allows a lease as long as the lock stays.
  const lock = await unlessTaken(acquire({ lease: Math.max(stays, lease) }));
  if (!lock) return false;
  const began = performance.now();
  try {
    await answered(lock.extend(lease)); // without an answer, the longer lease is renewed
    await run(lock);
    // While no server answers, the renewal is tried again: the success must not be forgotten.
    while (!(await answered(lock.extend()))) await pause(PAUSE, lock.signal);
  } catch (error) {
    await lock.free().catch(() => {}); // a hold that is not released ends with its lease
    throw error;
  }
  await lock.releaseIn(Math.max(1, Math.ceil(stays - (performance.now() - began))));
  return true;
}

/** @param {Promise<Lock>} acquiring */
async function unlessTaken(acquiring) {
  try {
    return await acquiring;
  } catch (error) {
    if (error instanceof NotGranted) return null;
    throw error;
  }
}

/**
 * Whether a server has answered.
 *
 * @param {Promise<unknown>} asking
 */
async function answered(asking) {
  try {
    await asking;
    return true;
  } catch (error) {
    if (error instanceof NoAnswer) return false;
    throw error;
  }
}

module.exports = { keptFor, onceAtAll, onceInSuccess };
