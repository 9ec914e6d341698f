'use strict';
/**
 * At most one run in each period, on all machines together. The lock is the memory of the run: it stays for a part of
 * the period, counted from the grant. Only the server's clock decides when that part is over.
 */

const { NoAnswer, NotGranted } = require('./errors.js');
const { isCount } = require('./options.js');
const { pause } = require('./time.js');
const { mustBe } = require('./words.js');

/**
 * @typedef {import('./index.js').LockOptions} LockOptions
 * @typedef {import('./hold.js').Lock} Lock
 */

/** The shortest period, in ms: the start of a run takes a part of it. */
const SHORTEST = 1000;
/** The pause between two attempts to reach the server after a run, in ms. */
const PAUSE = 200;

/**
 * Returns how long the lock of a run stays: nine tenths of the period. The next start may come early by the last tenth:
 * clocks differ, the last start was late on a busy machine, or the day had 23 hours.
 *
 * @param {unknown} period ms
 */
function keptFor(period) {
  if (!isCount(period, SHORTEST)) {
    throw new RangeError(mustBe('period', `a whole number of milliseconds, ${SHORTEST} or more`, period));
  }
  return Math.floor(/** @type {number} */ (period) / 10) * 9;
}

/**
 * Runs once in a period. The run counts even if it fails, or dies with its program.
 *
 * @param {(options: LockOptions) => Promise<Lock>} acquire
 * @param {number} stays for how long the lock stays, in ms from the grant
 * @param {(lock: Lock) => Promise<unknown>} run keeps the lock meanwhile, and releases it
 * @returns {Promise<boolean>} whether it ran
 */
async function onceAtAll(acquire, stays, run) {
  const lock = await unlessTaken(acquire({ atLeast: stays }));
  if (lock) await run(lock);
  return lock !== null;
}

/**
 * Runs once in a period. The run counts only if it succeeds.
 *
 * @param {(options: LockOptions) => Promise<Lock>} acquire
 * @param {number} stays for how long the lock stays, in ms from the grant
 * @param {number} lease of the lock during the run, in ms
 * @param {(lock: Lock) => Promise<unknown>} run keeps the lock meanwhile. Rejects if the lock was lost
 * @returns {Promise<boolean>} whether it ran
 */
async function onceInSuccess(acquire, stays, lease, run) {
  // The grant shows that the server allows a lease as long as the lock stays.
  const lock = await unlessTaken(acquire({ lease: Math.max(stays, lease) }));
  if (!lock) return false;
  const began = performance.now();
  const left = () => Math.max(1, Math.ceil(stays - (performance.now() - began)));
  try {
    await answered(lock.extend(lease)); // without an answer, the run goes on with the longer lease
    await run(lock);
    // The renewal is tried again while no server answers: a release without an answer would forget the success. Its
    // lease is as long as the lock stays, or longer, because the server may execute a try without an answer later.
    lock.stopKeeping();
    while (!(await answered(lock.extend(Math.max(left(), lease))))) await pause(PAUSE, lock.signal);
  } catch (error) {
    await lock.free().catch(() => {}); // a hold that is not released ends with its lease
    throw error;
  }
  await lock.releaseIn(left());
  return true;
}

/**
 * Returns the lock, or null if another run has it.
 *
 * @param {Promise<Lock>} acquiring
 */
async function unlessTaken(acquiring) {
  try {
    return await acquiring;
  } catch (error) {
    if (error instanceof NotGranted) return null;
    throw error;
  }
}

/**
 * Returns whether a server has answered. Rejects if the answer is an error.
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
