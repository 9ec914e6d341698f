'use strict';
/** The target of an acquisition: the keys of its lock or locks, and the commands for them. */

const COMMANDS = { exclusive: 'DLOCK.ACQUIRE', read: 'DLOCK.RLOCK', write: 'DLOCK.WLOCK' };

/** The keys that are acquired together, and how. */
class Target {
  /**
   * @param {string} resource the name of the lock in messages
   * @param {string[]} keys
   * @param {(owner: string) => string[]} acquire returns the acquiring command without its options
   * @param {string[]} count the option by which RELEASE releases all entries of one acquisition; empty for one entry
   */
  constructor(resource, keys, acquire, count = []) {
    this.resource = resource;
    this.keys = keys;
    this.acquire = acquire;
    this.count = count;
  }

  /**
   * @param {string} key
   * @param {string} resource
   * @param {'exclusive' | 'read' | 'write'} mode
   */
  static one(key, resource, mode) {
    return new Target(resource, [key], (owner) => [COMMANDS[mode], key, owner]);
  }

  /**
   * Several locks, of which all are granted or none.
   *
   * @param {string[]} keys
   * @param {string} resource
   */
  static all(keys, resource) {
    return new Target(resource, keys, (owner) => ['DLOCK.MACQUIRE', String(keys.length), ...keys, owner]);
  }

  /**
   * Permits of a semaphore.
   *
   * @param {string} key
   * @param {string} resource
   * @param {number} limit
   * @param {number} permits
   */
  static permits(key, resource, limit, permits) {
    const count = ['PERMITS', String(permits)];
    return new Target(resource, [key], (owner) => ['DLOCK.SACQUIRE', key, owner, String(limit), ...count], count);
  }

  /**
   * A permit of a semaphore, with a number.
   *
   * @param {string} key
   * @param {string} resource
   * @param {number} limit
   */
  static slot(key, resource, limit) {
    return new Target(resource, [key], (owner) => ['DLOCK.SACQUIRE', key, owner, String(limit), 'SLOT']);
  }

  /**
   * Returns the commands, one for each key, that release the hold with this token.
   *
   * @param {string} owner
   * @param {number} token
   */
  release(owner, token) {
    return this.keys.map((key) => ['DLOCK.RELEASE', key, owner, ...this.count, 'TOKEN', String(token)]);
  }

  /**
   * Returns the commands that release all that the owners hold, for an acquisition whose token is not known.
   *
   * @param {string[]} owners the owners of this acquisition only
   */
  releaseAll(...owners) {
    return owners.flatMap((owner) => this.keys.map((key) => ['DLOCK.RELEASE', key, owner, 'ALL']));
  }

  /**
   * @param {string} owner
   * @param {number} token
   * @param {number} lease in ms
   */
  renew(owner, token, lease) {
    return this.keys.map((key) => ['DLOCK.RENEW', key, owner, 'PX', String(lease), 'TOKEN', String(token)]);
  }

  /**
   * @param {string} owner
   * @param {number} token
   * @param {string} session the id of a named session
   */
  bind(owner, token, session) {
    return this.keys.map((key) => ['DLOCK.RENEW', key, owner, 'TOKEN', String(token), 'SESSIONID', session]);
  }

  /**
   * Returns the commands that ask for the owner's holds.
   *
   * @param {string} owner
   */
  info(owner) {
    return this.keys.map((key) => ['DLOCK.INFO', key, 'OWNER', owner]);
  }

  /**
   * Returns the commands that ask how long the hold lasts.
   *
   * @param {number} token
   */
  check(token) {
    return this.keys.map((key) => ['DLOCK.CHECK', key, String(token)]);
  }
}

exports.Target = Target;
