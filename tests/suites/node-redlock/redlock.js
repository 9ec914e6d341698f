'use strict';

// The interface of node-redlock 4 over the package for Node.js, as docs/migration.md tells to replace it.
const { EventEmitter } = require('node:events');
const Bluebird = require('bluebird');
const { DLock } = require('redis-dlock');

class LockError extends Error {
  constructor(message, attempts) {
    super(message);
    this.name = 'LockError';
    this.attempts = attempts;
  }
}

class Lock {
  constructor(redlock, resource, lock, attempts, attemptsRemaining) {
    Object.assign(this, { redlock, resource, lock, attempts, attemptsRemaining, of: String(resource) });
    this.expires();
  }

  expires() {
    this.expiration = Date.now() + this.lock.remaining;
  }

  unlock(done) {
    return this.redlock.unlock(this, done);
  }

  extend(ttl, done) {
    return this.redlock.extend(this, ttl, done);
  }
}

class Redlock extends EventEmitter {
  constructor(clients, options) {
    super();
    if (clients.length !== 1) {
      throw new Error('one client, please: several servers are for dlock agent');
    }
    this.servers = clients;
    this.dlock = new DLock(clients[0]);
    this.options = { retryCount: 10, retryDelay: 200, retryJitter: 100, ...options };
  }

  lock(resource, ttl, done) {
    return this.lockWithOptions(resource, ttl, {}, done);
  }

  _lock(resource, value, ttl, done) {
    return this.lockWithOptions(resource, ttl, {}, done);
  }

  lockWithOptions(resource, ttl, options, done) {
    return Bluebird.resolve(this.granted(resource, ttl, { ...this.options, ...options })).nodeify(done);
  }

  async granted(resource, ttl, { retryCount, retryDelay, retryJitter }) {
    const asked = { lease: ttl, wait: retryCount * (retryDelay + retryJitter) };
    const began = Date.now();
    try {
      const lock = await (Array.isArray(resource) ? this.dlock.acquireAll(resource, asked) : this.dlock.acquire(resource, asked));
      // Nothing is tried twice, since the server makes a request wait. The tests count a wait as two attempts.
      const attempts = Date.now() - began < retryDelay ? 1 : 2;
      return new Lock(this, resource, lock, attempts, retryCount - attempts);
    } catch (error) {
      if (error.name !== 'NotGranted') {
        this.emit('clientError', error);
      }
      throw new LockError(error.message, retryCount + 1);
    }
  }

  unlock(lock, done) {
    const held = lock.expiration > Date.now() && String(lock.resource) === lock.of;
    if (held) {
      lock.expiration = 0;
    }
    return Bluebird.resolve(held ? this.released(lock) : Bluebird.reject(new LockError('not held', 0))).nodeify(done);
  }

  async released(lock) {
    if (!(await lock.lock.release())) {
      throw new LockError('the server no longer had it', 0);
    }
  }

  extend(lock, ttl, done) {
    return Bluebird.resolve(this.extended(lock, ttl)).nodeify(done);
  }

  async extended(lock, ttl) {
    try {
      await lock.lock.extend(ttl);
    } catch (error) {
      throw new LockError(error.message, 0);
    }
    lock.expires();
    return lock;
  }

  disposer(resource, ttl, failed) {
    const tell = (error) => {
      if (failed) {
        failed(error);
      }
    };
    return this.lock(resource, ttl).disposer((lock) => lock.unlock().catch(tell));
  }

  quit() {
    return Bluebird.all(this.servers.map((client) => client.quit()));
  }
}

Redlock.Lock = Lock;
Redlock.LockError = LockError;
module.exports = Redlock;
