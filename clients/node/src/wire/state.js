'use strict';
/** Follows the state of a client's connection: it asks the server, and hears what the program sends. */

const { Unlike, isAnswer } = require('../errors.js');
const { SILENCE } = require('../limits.js');
const { Part, Profile, differenceOf, isSelect, presentOf } = require('../profile.js');
const { timer } = require('../time.js');

/** @typedef {import('../profile.js').Present} Present */

/** @type {WeakMap<object, State>} */
const states = new WeakMap();

class State {
  profile = new Profile();
  #ask;
  #isReady;
  #database;
  /** The user may not ask. */
  #isRefused = false;
  /** Whether the profile has the database of this connection: the server has told it, or the client has selected it. */
  #isKnown = new Part(false);
  /** How often the database may have changed: the client has selected one, or its connection has ended. */
  #turns = 0;

  /**
   * @param {() => Promise<unknown>} ask sends CLIENT INFO on the client
   * @param {() => boolean} isReady
   * @param {() => number | undefined} [database] as the client knows it
   */
  constructor(ask, isReady, database = () => undefined) {
    this.#database = database;
    this.#ask = ask;
    this.#isReady = isReady;
  }

  /** The database that the client has selected, as far as is known. */
  get database() {
    const { database } = this.profile;
    if (this.#isKnown.value) return database ?? this.#database();
    return this.#database() ?? (this.#isRefused ? database : undefined);
  }

  /**
   * Notes a command that changes the state of the connection.
   *
   * @param {string[]} command
   * @returns {(isRefused: boolean) => void} to be called with the answer
   */
  hears(command) {
    const answered = this.profile.sends(command);
    if (!isSelect(command[0])) return answered;
    this.#turns += 1;
    const known = this.#isKnown.set(true);
    return (isRefused) => {
      answered(isRefused);
      known(isRefused);
    };
  }

  /** The connection has ended. The next one may be in another database, unless the client selects the same again. */
  ended() {
    this.profile.ended();
    this.#turns += 1;
    this.#isKnown.replace(false);
  }

  /** Asks the server, unless its answer on this connection is known already. */
  async learn() {
    if (!this.#isKnown.value) await this.look();
  }

  /**
   * Asks the server, if the client is ready and the user may ask. Without an answer soon, returns what is known.
   *
   * @param {boolean} [isSilent] the server has not answered just now, and is not asked
   * @returns {Promise<Present>}
   */
  async look(isSilent = false) {
    const mayAsk = !this.#isRefused && !isSilent && this.#isReady();
    const turn = this.#turns;
    const present = mayAsk ? await soonOr(this.#answer()) : undefined;
    if (present) {
      // The client may have selected another database since the question.
      const isOfNow = turn === this.#turns;
      this.profile.told(isOfNow ? present : { ...present, database: undefined });
      if (isOfNow) this.#isKnown.replace(true);
    }
    const { database, name } = this.profile;
    return present ?? { database: this.database ?? database, user: undefined, name };
  }

  /**
   * Throws if a new connection is another user's, or in another database, as far as the server says.
   *
   * @param {() => Promise<unknown>} ask sends CLIENT INFO on the new connection
   * @param {Present} present
   */
  async compare(ask, present) {
    if (present.user === undefined && present.database === undefined) return;
    const reply = await ask().catch((error) => (isAnswer(error) ? '' : Promise.reject(error)));
    const difference = differenceOf(presentOf(reply), present);
    if (difference) throw new Unlike(difference);
  }

  async #answer() {
    try {
      return presentOf(await this.#ask());
    } catch (error) {
      this.#isRefused ||= isAnswer(error);
      return undefined;
    }
  }
}

/**
 * @template T
 * @param {Promise<T>} promise
 * @returns {Promise<T | undefined>}
 */
async function soonOr(promise) {
  /** @type {NodeJS.Timeout | undefined} */
  let timeout;
  const late = new Promise((resolve) => (timeout = timer(() => setImmediate(() => resolve(undefined)), SILENCE)));
  try {
    return /** @type {T | undefined} */ (await Promise.race([promise, late]));
  } finally {
    clearTimeout(timeout);
  }
}

/**
 * The state of a client, one for all that use it. From now on it hears what the program sends: neither ioredis nor
 * node-redis tells with which password it has logged in since it was made.
 *
 * @param {any} client
 * @param {() => State} make
 * @param {(words: any[], result: any) => { command: string[], reply: Promise<unknown> } | undefined} read what was sent
 * @param {string} ends the event that its connection has ended
 * @returns {State}
 */
function stateOf(client, make, read, ends) {
  const known = states.get(client);
  if (known) return known;
  const state = make();
  states.set(client, state);
  const send = client.sendCommand;
  const value = function (/** @type {any[]} */ ...words) {
    // @ts-expect-error `this` is the client, or one that inherits from it
    const result = send.apply(this, words);
    const sent = read(words, result);
    if (sent) {
      const answered = state.hears(sent.command);
      sent.reply.then(() => answered(false), () => answered(true));
    }
    return result;
  };
  Object.defineProperty(client, 'sendCommand', { value, configurable: true, enumerable: false, writable: true });
  client.on?.(ends, () => state.ended());
  return state;
}

module.exports = { State, stateOf };
