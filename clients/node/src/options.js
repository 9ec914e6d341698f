'use strict';
/** The arguments of callers, checked before anything is sent: a wrong argument must not lock the wrong thing. */

const { checkLabel } = require('./owners.js');
const { mustBe } = require('./words.js');

/**
 * @typedef {import('./index.js').LockOptions} LockOptions
 * @typedef {object} Terms
 * @property {number} lease in ms, like the other times here
 * @property {number} wait
 * @property {number} answer
 * @property {number} outage
 * @property {'exclusive' | 'read' | 'write'} mode
 * @property {boolean} session whether the hold is bound to a connection of its own
 * @property {import('./session.js').Session | undefined} named the session that keeps the hold
 * @property {number} replicas
 * @property {number} replicasTimeout
 * @property {number} maxHold may be Infinity
 * @property {number} atLeast 0: the hold ends with its release
 * @property {boolean} renew whether the hold is renewed from the grant on
 * @property {string} owner what the owner begins with
 * @property {AbortSignal | undefined} signal
 */

/** @type {Required<Omit<LockOptions, 'signal'>>} */
const DEFAULTS = {
  lease: 30_000,
  wait: Infinity,
  answer: 1000,
  outage: 30_000,
  mode: 'exclusive',
  session: false,
  replicas: 0,
  replicasTimeout: 1000,
  maxHold: Infinity,
  atLeast: 0,
  renew: false,
  owner: '',
};
const NAMES = [...Object.keys(DEFAULTS), 'signal'];
const MODES = ['exclusive', 'read', 'write'];
/** The shortest lease, in ms. Client and server count whole ms, so a lease of 2 ms is certain for no moment. */
const SHORTEST = 3;
/** A lease shorter than this, in ms, may be meant in seconds. */
const SHORT = 300;

/**
 * @param {unknown} options
 * @returns {LockOptions}
 */
function checkedOptions(options) {
  if (options === undefined) return {};
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw new TypeError(mustBe('options', 'an object, such as { lease: 5000 }', options));
  }
  for (const name of Object.keys(options)) {
    if (!NAMES.includes(name)) throw new TypeError(`unknown option ${name}; there are ${NAMES.join(', ')}`);
  }
  return options;
}

/**
 * @param {LockOptions} options
 * @returns {Terms}
 */
function termsOf(options) {
  /** @type {Record<string, unknown>} */
  const all = { signal: undefined, ...DEFAULTS };
  for (const [name, value] of Object.entries(options)) if (value !== undefined) all[name] = value;
  const terms = /** @type {Terms} */ (/** @type {unknown} */ (all));
  const { lease, wait, answer, outage, mode, replicas, replicasTimeout, maxHold, atLeast, renew, owner, signal } = terms;
  /** @type {unknown} */
  const bindsTo = terms.session;
  checkLease(lease);
  if (typeof wait !== 'number' || !(wait >= 0)) {
    throw new RangeError(mustBe('wait', 'a number of milliseconds, 0 or more, or Infinity', wait));
  }
  if (!isCount(answer, 1)) throw new RangeError(mustBe('answer', 'a whole number of milliseconds, 1 or more', answer));
  if (typeof outage !== 'number' || !(outage >= 1)) {
    throw new RangeError(mustBe('outage', 'a number of milliseconds, 1 or more, or Infinity', outage));
  }
  if (!MODES.includes(mode)) throw new RangeError(mustBe('mode', 'exclusive, read or write', mode));
  const named = isSession(bindsTo) ? bindsTo : undefined;
  if (typeof bindsTo !== 'boolean' && !named) {
    throw new TypeError(mustBe('session', 'true, false or a Session', bindsTo));
  }
  if (!isCount(replicas, 0)) throw new RangeError(mustBe('replicas', 'a whole number, 0 or more', replicas));
  if (!isCount(replicasTimeout, 1)) {
    throw new RangeError(mustBe('replicasTimeout', 'a whole number of milliseconds, 1 or more', replicasTimeout));
  }
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw new TypeError(mustBe('signal', 'an AbortSignal', signal));
  }
  if (typeof renew !== 'boolean') throw new TypeError(mustBe('renew', 'true or false', renew));
  checkLabel(owner);
  const session = bindsTo === true;
  checkHold(maxHold, atLeast, session || named !== undefined);
  return {
    // A lock of a session gets at least the lease that the session needs. The server refuses one beyond the cap.
    lease: Math.min(named?.leaseOf(options.lease ?? 1) ?? lease, maxHold),
    ...{ wait, answer, outage, mode, session, named },
    ...{ replicas, replicasTimeout, maxHold, atLeast, renew, owner, signal },
  };
}

/**
 * @param {any} value
 * @returns {value is import('./session.js').Session}
 */
function isSession(value) {
  return typeof value?.leaseOf === 'function' && typeof value.isOf === 'function';
}

/**
 * @param {number} maxHold
 * @param {number} atLeast
 * @param {boolean} isOfSession
 */
function checkHold(maxHold, atLeast, isOfSession) {
  if (maxHold !== Infinity && !isCount(maxHold, SHORTEST)) {
    const kind = `a whole number of milliseconds, ${SHORTEST} or more, or Infinity`;
    throw new RangeError(mustBe('maxHold', kind, maxHold));
  }
  if (!isCount(atLeast, 0)) {
    throw new RangeError(mustBe('atLeast', 'a whole number of milliseconds, 0 or more', atLeast));
  }
  if (atLeast > maxHold) throw new RangeError(`atLeast (${atLeast}) must not be longer than maxHold (${maxHold})`);
  if (atLeast > 0 && isOfSession) throw new TypeError('the end of a session frees its locks: none stays for atLeast');
}

/**
 * Returns the lease to request: `atLeast` or more, so that the lock stays that long even if the program dies.
 *
 * @param {Terms} terms
 */
function firstLease({ lease, atLeast }) {
  return Math.max(lease, atLeast);
}

/** @param {unknown} lease */
function checkLease(lease) {
  if (!isCount(lease, SHORTEST)) {
    const kind = `a whole number of milliseconds, ${SHORTEST} or more (no hold is certain for a shorter one)`;
    throw new RangeError(mustBe('lease', kind, lease));
  }
}

/**
 * Returns a warning if the lease may be meant in seconds.
 *
 * @param {number | undefined} lease
 */
function warningOf(lease) {
  if (lease === undefined || lease >= SHORT) return undefined;
  return `lease: ${lease} is ${lease} milliseconds. Seconds are ${lease}_000`;
}

/** @param {unknown} resource */
function checkResource(resource) {
  if (typeof resource === 'string' && resource !== '') return;
  throw new TypeError(mustBe('resource', 'a name, a string that is not empty', resource));
}

/** @param {unknown} resources */
function checkResources(resources) {
  if (!Array.isArray(resources) || resources.length < 1 || resources.length > 64) {
    throw new TypeError(mustBe('resources', 'an array of 1 to 64 names', resources));
  }
  resources.forEach(checkResource);
  if (new Set(resources).size < resources.length) throw new TypeError('resources has a name twice');
}

/**
 * Checks the options of exclusive locks and semaphores, which have no mode.
 *
 * @param {unknown} options
 */
function withoutMode(options) {
  const checked = checkedOptions(options);
  if (checked.mode !== undefined) throw new TypeError('there is no mode here');
  return checked;
}

/**
 * Checks the options of a run once in a period: its lock stays for the period, and a session would free it earlier.
 *
 * @param {unknown} options
 */
function withoutHold(options) {
  const checked = withoutMode(options);
  if (checked.session) throw new TypeError('the end of a session frees its locks: none stays for a period');
  if (checked.atLeast !== undefined) throw new TypeError('there is no atLeast here: the lock stays for the period');
  return checked;
}

/** @param {unknown} routine */
function checkRoutine(routine) {
  if (typeof routine !== 'function') throw new TypeError(mustBe('routine', 'a function', routine));
}

/**
 * @param {unknown} value
 * @param {number} least
 */
function isCount(value, least) {
  return Number.isSafeInteger(value) && /** @type {number} */ (value) >= least;
}

module.exports = {
  checkLease,
  checkResource,
  checkResources,
  checkRoutine,
  checkedOptions,
  firstLease,
  isCount,
  termsOf,
  warningOf,
  withoutHold,
  withoutMode,
};
