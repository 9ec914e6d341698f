'use strict';
/** Promises with time limits. Times are those of performance.now(), in ms, which only goes forward. */

/** The longest time that setTimeout takes, in ms. */
const LONGEST = 2 ** 31 - 1;

/** The functions to call when a signal is aborted: see `follow`. @type {WeakMap<AbortSignal, Set<() => void>>} */
const followers = new WeakMap();

/** The part of an AbortController that this package needs: making one is slow, and each acquisition has several. */
class Ending {
  aborted = false;
  /** @type {unknown} */
  reason = undefined;
  /** The first follower; most endings have no other. @type {(() => void) | undefined} */
  #first;
  /** The later followers. @type {Set<() => void> | undefined} */
  #others;

  /** A signal for the functions of this package: this object, which has only what they use of a signal. */
  get signal() {
    return /** @type {AbortSignal} */ (/** @type {unknown} */ (this));
  }

  /** @param {unknown} reason */
  abort(reason) {
    if (this.aborted) return;
    this.aborted = true;
    this.reason = reason;
    const all = [this.#first, ...(this.#others ?? [])];
    this.#first = this.#others = undefined;
    for (const each of all) each?.();
  }

  throwIfAborted() {
    if (this.aborted) throw this.reason;
  }

  /** @param {() => void} then */
  follow(then) {
    // `#first` stays empty while there are others: followers are called in the order in which they came.
    if (!this.#first && !this.#others?.size) {
      this.#first = then;
      return () => {
        if (this.#first === then) this.#first = undefined;
      };
    }
    const others = (this.#others ??= new Set());
    others.add(then);
    return () => void others.delete(then);
  }
}

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
 * Calls back when the signal is aborted. All followers of a signal share one listener, because Node.js warns of a leak
 * from the eleventh listener on.
 *
 * @param {AbortSignal} signal
 * @param {() => void} then
 * @returns {() => void} a function that stops following
 */
function follow(signal, then) {
  if (signal.aborted) {
    then();
    return () => {};
  }
  if (signal instanceof Ending) return signal.follow(then);
  const known = followers.get(signal);
  const all = known ?? new Set();
  if (!known) {
    followers.set(signal, all);
    signal.addEventListener('abort', () => [...all].forEach((each) => each()), { once: true });
  }
  all.add(then);
  return () => void all.delete(then);
}

/**
 * Settles as the promise does, or rejects with the signal's reason if the signal is aborted first.
 *
 * @template T
 * @param {Promise<T>} promise
 * @param {AbortSignal | undefined} signal
 * @returns {Promise<T>}
 */
function unlessAborted(promise, signal) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const stop = follow(signal, () => reject(signal.reason));
    promise.then(
      (result) => {
        stop();
        resolve(result);
      },
      (error) => {
        stop();
        reject(error);
      },
    );
  });
}

/**
 * @param {number} ms
 * @param {AbortSignal | undefined} signal ends the pause early, with a rejection
 */
async function pause(ms, signal) {
  /** @type {NodeJS.Timeout | undefined} */
  let timeout;
  try {
    await unlessAborted(new Promise((resolve) => (timeout = setTimeout(() => resolve(undefined), ms))), signal);
  } finally {
    clearTimeout(timeout);
  }
}

/**
 * @typedef {object} Heard how an answer of the server has moved the end of a task
 * @property {number} before the end before the answer
 * @property {number} after the end after the answer
 */

/** The time limit of a task. `signal` is aborted when the time is over, or together with the signal of the caller. */
class Bound {
  /** The last failure of a command: the reason if no answer comes in time. */
  cause = /** @type {unknown} */ (undefined);
  #controller = new Ending();
  #error;
  #silence;
  #end;
  #stop;
  #isClosed = false;
  /** @type {NodeJS.Timeout | undefined} */
  #timeout;

  /**
   * @param {{ ms?: number, silence?: number }} limits in ms. `ms`: in all; `silence`: since the server's last answer
   * @param {AbortSignal | undefined} signal the signal of the caller
   * @param {(cause: unknown) => Error} error makes the reason with which `signal` is aborted when the time is over
   */
  constructor({ ms = Infinity, silence = Infinity }, signal, error) {
    this.#error = error;
    this.#silence = silence;
    this.#end = performance.now() + Math.min(ms, silence);
    this.#stop = signal ? follow(signal, () => this.#controller.abort(signal.reason)) : () => {};
    if (!this.signal.aborted) this.#arm();
  }

  get signal() {
    return this.#controller.signal;
  }

  /** The ms until the end. `Infinity` if only a silence of the server ends the task. */
  get left() {
    return this.#silence === Infinity ? this.#end - performance.now() : Infinity;
  }

  /**
   * The server has answered, whatever it said.
   *
   * @returns {Heard}
   */
  heard() {
    const before = this.#end;
    if (this.#silence !== Infinity) this.#end = performance.now() + this.#silence;
    return { before, after: this.#end };
  }

  /**
   * Undoes `heard` for an answer that turned out to be none, unless the server has answered since.
   *
   * @param {Heard | undefined} heard
   */
  unheard(heard) {
    if (!heard || this.#end !== heard.after || this.#isClosed || this.signal.aborted) return;
    this.#end = heard.before;
    clearTimeout(this.#timeout);
    this.#arm();
  }

  /** Sets the timer for the end. */
  #arm() {
    const left = this.#end - performance.now();
    // Unlike `timer`, this timer keeps the program running, because a caller waits for the task.
    if (left > 0) this.#timeout = setTimeout(() => this.#arm(), Math.min(Math.ceil(left), LONGEST));
    else setImmediate(() => this.#expire()); // Replies that came while the program was busy are read first.
  }

  /** Aborts the signal, unless an answer has moved the end. */
  #expire() {
    if (this.#isClosed) return;
    if (this.#end > performance.now()) this.#arm();
    else this.#controller.abort(this.#error(this.cause ?? new Error('the server is silent')));
  }

  /** The task is done: nothing is aborted any more. */
  close() {
    this.#isClosed = true;
    clearTimeout(this.#timeout);
    this.#stop();
  }
}

/**
 * Runs a task with a time limit. Rejects when the time is over, even if the task goes on.
 *
 * @template T
 * @param {{ ms?: number, silence?: number }} limits
 * @param {AbortSignal | undefined} signal
 * @param {(cause: unknown) => Error} error
 * @param {(bound: Bound) => Promise<T>} task
 * @param {(result: T) => void} [late] gets the result if the task succeeds after that
 * @returns {Promise<T>}
 */
async function within(limits, signal, error, task, late) {
  const bound = new Bound(limits, signal, error);
  const result = task(bound);
  try {
    return await unlessAborted(result, bound.signal);
  } catch (error) {
    result.then(late, () => {});
    throw error;
  } finally {
    bound.close();
  }
}

exports.Bound = Bound;
exports.Ending = Ending;
exports.follow = follow;
exports.pause = pause;
exports.timer = timer;
exports.unlessAborted = unlessAborted;
exports.within = within;
