'use strict';
/** The program's client as this package uses it: to send commands, and to make connections like its own. */

const { NotSent } = require('../errors.js');
const { ofGlide } = require('./glide.js');
const { ofIoredis, ofIoredisCluster } = require('./ioredis.js');
const { ofNodeRedis, ofNodeRedisCluster, ofNodeRedisSentinel } = require('./node_redis.js');

/**
 * @typedef {import('./connection.js').Connection} Connection
 *
 * @typedef {object} Wanted what a connection is for
 * @property {AbortSignal | undefined} signal ends the attempt
 * @property {boolean} [again] the last attempt failed: a cluster's nodes are asked which of them has the key now
 * @property {number | undefined} [database] the database, if it is not the one that the client has selected
 * @property {(() => void) | undefined} [onMessage] called for each message. The connection then speaks version 2 of the
 *   protocol, in which the server sends changes of keys as ordinary messages
 *
 * @typedef {object} Client the client of the program, which the program uses for other things, too
 * @property {string} prefix the prefix that the client puts before every key
 * @property {() => boolean} isClosed whether the program has closed the client, or has not connected it
 * @property {boolean} [hidesReconnects] whether a connection from `connect` may reconnect unnoticed
 * @property {(args: string[], key: string) => Promise<unknown>} send
 * @property {(key: string, wanted: Wanted) => Promise<Connection>} connect makes a connection to the server that has
 *   the key
 * @property {() => Promise<unknown>} learn asks the server once which database the client has selected
 * @property {() => number | undefined} database the database that the client has selected, as far as is known
 * @property {number} [home] the only database to which this client sends: see `inDatabase`
 * @property {() => number} repeats how often the client itself has sent a command of this package again although a copy
 *   may have been executed
 * @property {(key: string) => string | undefined} at the address to which a command would go now. The comparison with
 *   `Connection.at` shows whether a waiting connection still leads to the client's server. undefined: the client does
 *   not tell
 * @property {(key: string) => string} node the node of a cluster that has the key, as far as the client knows
 */

/**
 * Recognizes a client by its methods, and returns it as this package uses it.
 *
 * @param {any} client
 * @returns {Client}
 */
function clientOf(client) {
  const has = (/** @type {string} */ name) => typeof client?.[name] === 'function';
  if (client?.isCluster === true && has('call') && has('nodes')) return ofIoredisCluster(client);
  if (has('call') && has('duplicate') && !client.isCluster) return ofIoredis(client);
  if (has('sendCommand') && has('nodeClient')) return ofNodeRedisCluster(client);
  if (has('sendCommand') && has('getMasterNode') && has('_execute')) return ofNodeRedisSentinel(client);
  if (has('sendCommand') && has('duplicate') && 'isReady' in client) return ofNodeRedis(client);
  if (has('customCommand') && has('pubsubShardChannels')) {
    throw new TypeError('client must be a GlideClient: a GlideClusterClient is not supported');
  }
  if (has('customCommand') && typeof client.constructor?.createClient === 'function') return ofGlide(client);
  // The message does not tell what was given: it may be a URL with a password.
  throw new TypeError('client must be a client, a cluster or a sentinel of ioredis or node-redis, or a GlideClient');
}

/** @param {any} client */
function isCluster(client) {
  return client?.isCluster === true || typeof client?.nodeClient === 'function';
}

/**
 * Returns the client for a hold in this database. While the program has selected another database, `send` of the result
 * rejects, and `connect` still leads to this one.
 *
 * @param {Client} client
 * @param {number | undefined} database
 * @returns {Client}
 */
function inDatabase(client, database) {
  if (database === undefined) return client;
  const known = inDatabases.get(client) ?? new Map();
  inDatabases.set(client, known);
  const made = known.get(database) ?? madeForDatabase(client, database);
  known.set(database, made);
  return made;
}

/** The clients that `inDatabase` has made, by client and database. @type {WeakMap<Client, Map<number, Client>>} */
const inDatabases = new WeakMap();

/**
 * Makes what `inDatabase` returns.
 *
 * @param {Client} client
 * @param {number} database
 * @returns {Client}
 */
function madeForDatabase(client, database) {
  return {
    ...client,
    home: database,
    send: (args, key) => {
      const now = client.database();
      if (now === undefined || now === database) return client.send(args, key);
      const moved = `the lock is in database ${database}, but the client has since selected database ${now}`;
      return Promise.reject(new NotSent(moved));
    },
    connect: (key, wanted) => client.connect(key, { ...wanted, database }),
  };
}

module.exports = { clientOf, inDatabase, isCluster };
