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

class Profile {
  /** @type {number | undefined} */
  #database;
  /** The last login by a command on the connection. undefined: that of the options. @type {Login | undefined} */
  #login;
  /** @type {string | undefined} */
  #name;

  /** The database that the client has selected, as far as is known. */
  get database() {
    return this.#database;
  }

  get login() {
    return this.#login;
  }

  get name() {
    return this.#name;
  }

  /**
   * Notes a command that the client sends. Later commands on its connection find the new state.
   *
   * @param {string[]} words
   * @returns {() => void} to be called if the server refuses it
   */
  sends([command = '', ...words]) {
    const [database, login, name] = [this.#database, this.#login, this.#name];
    switch (command.toUpperCase()) {
      case 'SELECT':
        this.#database = Number(words[0]);
        return () => void (this.#database = database);
      case 'AUTH':
        this.#login = loginOf(words);
        return () => void (this.#login = login);
      case 'HELLO': {
        // The first word is the version of the protocol.
        for (let at = 1; at < words.length; at++) {
          const option = words[at]?.toUpperCase();
          if (option === 'AUTH') {
            this.#login = loginOf(words.slice(at + 1, at + 3));
            at += 2;
          } else if (option === 'SETNAME') {
            this.#name = words[++at] ?? '';
          }
        }
        return () => void ([this.#login, this.#name] = [login, name]);
      }
      case 'CLIENT':
        if (words[0]?.toUpperCase() === 'SETNAME') this.#name = words[1] ?? '';
        return () => void (this.#name = name);
      case 'RESET':
        this.#database = 0;
        this.ended();
        return () => void ([this.#database, this.#login, this.#name] = [database, login, name]);
    }
    return () => {};
  }

  /** The client's connection has ended, or is reset: its login is that of the options again. */
  ended() {
    this.#login = undefined;
    this.#name = undefined;
  }

  /** @param {Present} present */
  told({ database, name }) {
    if (database !== undefined) this.#database = database;
    if (name !== undefined) this.#name = name;
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

module.exports = { Profile, differenceOf, isChange, isSelect, presentOf };
