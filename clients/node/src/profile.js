'use strict';
/**
 * Keeps the state that the connection of the program's client has now, so that a new one can have the same: its
 * database, its login and its name. Pure: the commands of the client and the answers of the server come in.
 */

/**
 * @typedef {{ username: string | undefined, password: string }} Login
 *
 * @typedef {object} Present what CLIENT INFO says of a connection. undefined: the server does not say
 * @property {number | undefined} database
 * @property {string | undefined} user
 * @property {string | undefined} name
 */

/** The commands that change the state of a connection. */
const CHANGES = new Set(['SELECT', 'AUTH', 'HELLO', 'CLIENT', 'RESET']);
/** The commands that change the database of a connection. */
const SELECTS = new Set(['SELECT', 'RESET']);

/** @param {unknown} command its name */
function isChange(command) {
  return CHANGES.has(String(command).toUpperCase());
}

/** @param {unknown} command its name */
function isSelect(command) {
  return SELECTS.has(String(command).toUpperCase());
}

/**
 * @template T
 * @typedef {{ value: T, isRefused: boolean, before: Setting<T> | undefined }} Setting what a command has set
 */

/**
 * A part of the state of a connection. Commands set it, and later commands find it set. The server may refuse each of
 * them, even if others have followed.
 *
 * @template T
 */
class Part {
  /** The last one that is not refused. It has those before it until its command is answered. @type {Setting<T>} */
  #last;

  /** @param {T} value */
  constructor(value) {
    this.#last = { value, isRefused: false, before: undefined };
  }

  get value() {
    return this.#last.value;
  }

  /**
   * Sets the value by a command.
   *
   * @param {T} value
   * @returns {(isRefused: boolean) => void} to be called with the answer
   */
  set(value) {
    /** @type {Setting<T>} */
    const setting = { value, isRefused: false, before: this.#last };
    this.#last = setting;
    return (isRefused) => {
      if (isRefused) setting.isRefused = true;
      else setting.before = undefined;
      while (this.#last.isRefused && this.#last.before) this.#last = this.#last.before;
    };
  }

  /**
   * Replaces what earlier commands have set.
   *
   * @param {T} value
   */
  replace(value) {
    this.#last = { value, isRefused: false, before: undefined };
  }
}

class Profile {
  #database = new Part(/** @type {number | undefined} */ (undefined));
  /** The last login by a command on the connection. undefined: that of the options. */
  #login = new Part(/** @type {Login | undefined} */ (undefined));
  #name = new Part(/** @type {string | undefined} */ (undefined));

  /** The database that the client has selected, as far as is known. */
  get database() {
    return this.#database.value;
  }

  get login() {
    return this.#login.value;
  }

  get name() {
    return this.#name.value;
  }

  /**
   * Notes a command that the client sends. Later commands on its connection find the new state.
   *
   * @param {string[]} words
   * @returns {(isRefused: boolean) => void} to be called with the answer
   */
  sends(words) {
    const answered = this.#settings(words);
    return (isRefused) => answered.forEach((each) => each(isRefused));
  }

  /** @param {string[]} words */
  #settings([command = '', ...words]) {
    switch (command.toUpperCase()) {
      case 'SELECT':
        return [this.#database.set(Number(words[0]))];
      case 'AUTH':
        return [this.#login.set(loginOf(words))];
      case 'HELLO': {
        const settings = [];
        // The first word is the version of the protocol.
        for (let at = 1; at < words.length; at++) {
          const option = words[at]?.toUpperCase();
          if (option === 'AUTH') {
            settings.push(this.#login.set(loginOf(words.slice(at + 1, at + 3))));
            at += 2;
          } else if (option === 'SETNAME') {
            settings.push(this.#name.set(words[++at] ?? ''));
          }
        }
        return settings;
      }
      case 'CLIENT':
        return words[0]?.toUpperCase() === 'SETNAME' ? [this.#name.set(words[1] ?? '')] : [];
      case 'RESET':
        return [this.#database.set(0), this.#login.set(undefined), this.#name.set(undefined)];
    }
    return [];
  }

  /** The client's connection has ended, or is reset: its login is that of the options again. */
  ended() {
    this.#login.replace(undefined);
    this.#name.replace(undefined);
  }

  /** @param {Present} present */
  told({ database, name }) {
    if (database !== undefined) this.#database.replace(database);
    if (name !== undefined) this.#name.replace(name);
  }
}

/** @param {string[]} words of AUTH: a password, perhaps with a name before */
function loginOf(words) {
  const [first = '', second] = words;
  return second === undefined ? { username: undefined, password: first } : { username: first, password: second };
}

/**
 * @param {unknown} line the reply to CLIENT INFO
 * @returns {Present}
 */
function presentOf(line) {
  const fields = new Map([...String(line).matchAll(/(?:^|\s)([\w-]+)=(\S*)/g)].map(([, name, value]) => [name, value]));
  const database = fields.get('db');
  return {
    database: database === undefined ? undefined : Number(database),
    ...{ user: fields.get('user'), name: fields.get('name') },
  };
}

/**
 * Why a new connection is not the same as the client's, if it is not. A user or a database that is not known does not
 * count.
 *
 * @param {Present} own
 * @param {Present} present of the client
 * @returns {string | undefined}
 */
function differenceOf(own, present) {
  for (const what of /** @type {const} */ (['user', 'database'])) {
    const [is, wanted] = [own[what], present[what]];
    if (is !== undefined && wanted !== undefined && is !== wanted) {
      return `a connection for waiting would have the ${what} ${is}, and the client has ${wanted}`;
    }
  }
  return undefined;
}

module.exports = { Part, Profile, differenceOf, isChange, isSelect, presentOf };
