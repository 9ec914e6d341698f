'use strict';
/** The clients as this package needs them: to send a command, and to have a connection of one's own. */

const { ofGlide } = require('./glide.js');
const { ofIoredis, ofIoredisCluster } = require('./ioredis.js');
const { ofNodeRedis, ofNodeRedisCluster, ofNodeRedisSentinel } = require('./node_redis.js');

/**
 * @typedef {import('./connection.js').Connection} Connection
 *
 * @typedef {object} Wanted what a connection is for
 * @property {AbortSignal | undefined} signal ends the attempt
 * @property {boolean} [again] the last attempt failed: a cluster's nodes are asked which of them has the key now
 * @property {number | undefined} [database] other than the one that the client has selected
 * @property {(() => void) | undefined} [onMessage] called at each message. The connection is one for version 2 of the
 *   protocol, in which the server publishes the changes of keys like other messages
 *
 * @typedef {object} Client the client of the program, shared with whatever else it does
 * @property {string} prefix what the client is set to put before every key
 * @property {() => boolean} isClosed the program has closed it, or has not connected it
 * @property {boolean} [hidesReconnects] a connection from `connect` may reconnect without telling
 * @property {(args: string[], key: string) => Promise<unknown>} send
 * @property {(key: string, wanted: Wanted) => Promise<Connection>} connect to the server that has the key
 * @property {() => Promise<unknown>} learn asks once, soon, for the database that the client has selected
 * @property {() => number | undefined} database the one that it has selected, as far as is known
 * @property {number} [home] the database that it sends to, whatever is selected
 * @property {(key: string) => unknown} socket the socket that it sends on now, if it repeats unanswered commands by
 *   itself when it has a new one; otherwise undefined
 * @property {(key: string) => string | undefined} at where it would send a command now, for a comparison
 * @property {(key: string) => string} node which node of a cluster has the key, as far as it knows
 */

/**
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
  if (has('customCommand') && has('pubsubShardChannels')) throw new TypeError('client is a GlideClient, not one of a cluster');
  if (has('customCommand') && typeof client.constructor?.createClient === 'function') return ofGlide(client);
  throw new TypeError('client is a client, a cluster or a sentinel of ioredis or node-redis, or a GlideClient');
}

/** @param {any} client */
function isCluster(client) {
  return client?.isCluster === true || typeof client?.nodeClient === 'function';
}

/**
 * The same client for a hold in a database, whatever the program selects later.
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

/** @type {WeakMap<Client, Map<number, Client>>} */
const inDatabases = new WeakMap();

/**
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
      return Promise.reject(new Error(`the client has selected the database ${now} since`));
    },
    connect: (key, wanted) => client.connect(key, { ...wanted, database }),
  };
}

module.exports = { clientOf, inDatabase, isCluster };
