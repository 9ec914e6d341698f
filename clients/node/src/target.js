'use strict';
/** The target of a lock: the keys, and the commands for them. */

const COMMANDS = { exclusive: 'DLOCK.ACQUIRE', read: 'DLOCK.RLOCK', write: 'DLOCK.WLOCK' };

class Target {
  /**
   * @param {string} resource for messages
   * @param {string[]} keys
   * @param {(owner: string) => string[]} acquire the acquiring command up to its options
   * @param {string[]} count how RELEASE names the entries of one acquisition
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
   * @param {string[]} keys
   * @param {string} resource
   */
  static all(keys, resource) {
    return new Target(resource, keys, (owner) => ['DLOCK.MACQUIRE', String(keys.length), ...keys, owner]);
  }

  /**
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
   * A permit with a number.
   *
   * @param {string} key
   * @param {string} resource
   * @param {number} limit
   */
  static slot(key, resource, limit) {
    return new Target(resource, [key], (owner) => ['DLOCK.SACQUIRE', key, owner, String(limit), 'SLOT']);
  }

  /**
   * A command for each key.
   *
   * @param {string} owner
   * @param {number} token
   */
  release(owner, token) {
    return this.keys.map((key) => ['DLOCK.RELEASE', key, owner, ...this.count, 'TOKEN', String(token)]);
  }

  /** @param {string} owner of one acquisition, whose token is not known */
  releaseAll(owner) {
    return this.keys.map((key) => ['DLOCK.RELEASE', key, owner, 'ALL']);
  }

  /**
   * @param {string} owner
   * @param {number} token
   * @param {number} lease
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

  /** @param {string} owner */
  info(owner) {
    return this.keys.map((key) => ['DLOCK.INFO', key, 'OWNER', owner]);
  }

  /** @param {number} token */
  check(token) {
    return this.keys.map((key) => ['DLOCK.CHECK', key, String(token)]);
  }
}

exports.Target = Target;
