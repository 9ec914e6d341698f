'use strict';
/** Promises with an end. Times are those of performance.now(), which only goes forward. */

/** The longest that setTimeout takes. */
const LONGEST = 2 ** 31 - 1;

/**
 * A timer that does not keep the program running.
 *
 * @param {() => void} then
 * @param {number} after
 */
function timer(then, after) {
  return setTimeout(then, Math.min(Math.max(Math.ceil(after), 0), LONGEST)).unref();
}

/**
 * The promise, or the signal's reason if that comes first.
 *
 * @template T
 * @param {Promise<T>} promise
 * @param {AbortSignal | undefined} signal
 * @returns {Promise<T>}
 */
async function unlessAborted(promise, signal) {
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

/**
 * Runs the task with a signal that is aborted after so many milliseconds, or with the caller's.
 *
 * @template T
 * @param {number} ms may be Infinity
 * @param {AbortSignal | undefined} signal
 * @param {() => Error} error the reason after that time
 * @param {(signal: AbortSignal | undefined) => Promise<T>} task
 * @returns {Promise<T>}
 */
async function within(ms, signal, error, task) {
  if (ms === Infinity) return task(signal);
  const bound = new AbortController();
  // This one keeps the program running: somebody waits for it.
  const timeout = setTimeout(() => bound.abort(error()), Math.min(ms, LONGEST));
  try {
    return await task(signal ? AbortSignal.any([signal, bound.signal]) : bound.signal);
  } finally {
    clearTimeout(timeout);
  }
}

module.exports = { timer, unlessAborted, within };
