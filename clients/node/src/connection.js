'use strict';
/** The clients as this package needs them: to send a command, and to have a connection of one's own. */
const slotOf = require('cluster-key-slot');

const { isMoving } = require('./errors.js');

/**
 * @typedef {import('./index.js').IoredisClient} IoredisClient
 * @typedef {import('./index.js').IoredisCluster} IoredisCluster
 * @typedef {import('./index.js').NodeRedisClient} NodeRedisClient
 * @typedef {import('./index.js').NodeRedisCluster} NodeRedisCluster
 * @typedef {import('./index.js').NodeRedisSentinel} NodeRedisSentinel
 *
 * @typedef {object} Connection a connection that nobody else uses, and that is not made again when it breaks
 * @property {(args: string[]) => Promise<unknown>} send
 * @property {(channel: string) => Promise<unknown>} subscribe if it was made with a listener
 * @property {Promise<void>} closed fulfilled when it has ended, from whichever side
 * @property {() => void} close
 *
 * @typedef {object} Client the client of the program, shared with whatever else it does
 * @property {string} prefix what the client is set to put before every key
 * @property {(args: string[], key: string) => Promise<unknown>} send
 * @property {(key: string, onMessage?: () => void) => Promise<Connection>} connect to the server that has the key; with
 *   a listener in version 2 of the protocol, in which messages about keys are like others
 * @property {(key: string) => unknown} socket what it sends on now, if it repeats unanswered commands by itself on the
 *   next one
 * @property {(key: string) => Promise<unknown>} find has a cluster's client find out which node has the key
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
  throw new TypeError('client is a client, a cluster or a sentinel of ioredis or node-redis');
}

/**
 * @param {IoredisClient} client
 * @returns {Client}
 */
function ofIoredis(client) {
  return {
    prefix: String(client.options.keyPrefix ?? ''),
    send: ([command = '', ...args]) => client.call(command, ...args),
    connect: (_, onMessage) => duplicateOfIoredis(client, onMessage),
    socket: () => client.stream,
    find: async () => undefined,
  };
}

/**
 * @param {IoredisCluster} cluster
 * @returns {Client}
 */
function ofIoredisCluster(cluster) {
  const options = /** @type {{ keyPrefix?: string, redisOptions?: { keyPrefix?: string } }} */ (cluster.options);
  /** @param {string} key */
  const nodeOf = (key) => {
    const address = cluster.slots[slotOf(key)]?.[0];
    return cluster.nodes('master').find(({ options }) => address === addressOf(options));
  };
  return {
    prefix: String(options.keyPrefix ?? options.redisOptions?.keyPrefix ?? ''),
    // ioredis does not know where the key of these commands is, so it would ask any node first.
    async send([command = '', ...args], key) {
      try {
        const node = nodeOf(key);
        if (node) return await node.call(command, ...args);
      } catch (error) {
        if (!isMoving(error)) throw error;
        await cluster.call('EXISTS', key);
      }
      return cluster.call(command, ...args);
    },
    async connect(key, onMessage) {
      const node = nodeOf(key) ?? cluster.nodes('master')[0];
      if (!node) throw new Error('the cluster is not connected');
      return duplicateOfIoredis(node, onMessage);
    },
    socket: (key) => nodeOf(key)?.stream,
    find: (key) => cluster.call('EXISTS', key),
  };
}

/** @param {object} options of a node's client */
function addressOf(options) {
  const { host, port } = /** @type {{ host?: string, port?: number }} */ (options);
  return `${host}:${port}`;
}

/**
 * @param {IoredisClient} client
 * @param {() => void} [onMessage]
 * @returns {Promise<Connection>}
 */
async function duplicateOfIoredis(client, onMessage) {
  /** @type {any} */
  const own = client.duplicate({
    ...(onMessage && { protocol: 2 }),
    lazyConnect: true,
    enableReadyCheck: false,
    retryStrategy: null,
    reconnectOnError: null,
    commandTimeout: undefined,
    socketTimeout: undefined,
    blockingTimeout: undefined,
  });
  /** @type {unknown} */
  let why;
  own.on('error', (/** @type {unknown} */ error) => (why = error));
  const closed = new Promise((resolve) => own.once('end', () => resolve(undefined)));
  await own.connect().catch((/** @type {unknown} */ error) => Promise.reject(why ?? error));
  const send = (/** @type {string[]} */ [command = '', ...args]) => own.call(command, ...args);
  if (onMessage) own.on('message', onMessage);
  return { send, subscribe: (channel) => own.subscribe(channel), closed, close: () => own.disconnect() };
}

/**
 * @param {NodeRedisClient} client
 * @returns {Client}
 */
function ofNodeRedis(client) {
  return {
    prefix: String(client.options?.keyPrefix ?? ''),
    send: (args) => client.sendCommand(args),
    connect: (_, onMessage) => duplicateOfNodeRedis(client, onMessage),
    socket: () => undefined,
    find: async () => undefined,
  };
}

/**
 * @param {NodeRedisCluster & { _keyPrefix?: unknown }} cluster
 * @returns {Client}
 */
function ofNodeRedisCluster(cluster) {
  return {
    prefix: String(cluster._keyPrefix ?? ''),
    send: (args, key) => cluster.sendCommand(key, false, args),
    async connect(key, onMessage) {
      const master = cluster.slots[slotOf(key)]?.master;
      if (!master) throw new Error('the cluster is not connected');
      return duplicateOfNodeRedis(await cluster.nodeClient(master), onMessage);
    },
    socket: () => undefined,
    find: (key) => cluster.sendCommand(key, false, ['EXISTS', key]),
  };
}

/**
 * @param {NodeRedisSentinel & { _keyPrefix?: unknown }} sentinel
 * @returns {Client}
 */
function ofNodeRedisSentinel(sentinel) {
  return {
    prefix: String(sentinel._keyPrefix ?? ''),
    send: (args) => sentinel.sendCommand(false, args),
    // Its pool lends the client of the primary only for as long as this takes.
    connect: (_, onMessage) => sentinel._execute(false, (client) => duplicateOfNodeRedis(client, onMessage)),
    socket: () => undefined,
    find: async () => undefined,
  };
}

/**
 * @param {NodeRedisClient} client
 * @param {() => void} [onMessage]
 * @returns {Promise<Connection>}
 */
async function duplicateOfNodeRedis(client, onMessage) {
  const { socket, commandOptions } = client.options ?? {};
  /** @type {any} */
  const own = client.duplicate({
    ...(onMessage && { RESP: 2, clientSideCache: undefined, maintNotifications: 'disabled' }),
    socket: { ...socket, socketTimeout: undefined, reconnectStrategy: false },
    commandOptions: { ...commandOptions, timeout: undefined },
    disableOfflineQueue: false,
    pingInterval: undefined,
  });
  const closed = new Promise((resolve) => {
    own.once('end', () => resolve(undefined));
    own.on('error', () => resolve(undefined)); // it does not connect again
  });
  await own.connect();
  return {
    send: (args) => own.sendCommand(args),
    subscribe: (channel) => own.subscribe(channel, onMessage),
    closed,
    close: () => void (own.isOpen && own.destroy()),
  };
}

module.exports = { clientOf };
