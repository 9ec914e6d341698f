'use strict';
/** Clients, clusters and Sentinel clients of node-redis. */
const slotOf = require('cluster-key-slot');

const { Connection, orElse } = require('./connection.js');
const { isNotExecuted } = require('../errors.js');
const { addressOf, homeOf } = require('./nodes.js');
const { isChange } = require('../profile.js');
const { State, stateOf } = require('./state.js');
const { unlessAborted } = require('../time.js');

/**
 * @typedef {import('../index.js').NodeRedisClient} NodeRedisClient
 * @typedef {import('../index.js').NodeRedisCluster} NodeRedisCluster
 * @typedef {import('../index.js').NodeRedisSentinel} NodeRedisSentinel
 * @typedef {import('./clients.js').Client} Client
 * @typedef {import('./clients.js').Wanted} Wanted
 */

/**
 * @param {NodeRedisClient} client
 * @returns {Client}
 */
function ofNodeRedis(client) {
  const state = stateOfNodeRedis(client);
  return {
    prefix: String(client.options?.keyPrefix ?? ''),
    isClosed: () => !client.isOpen,
    send: (args) => client.sendCommand(args),
    connect: (_, wanted) => duplicateOfNodeRedis(client, {}, wanted),
    learn: () => state.learn(),
    database: () => state.database,
    repeats: () => 0,
    at: () => undefined,
    node: () => '',
  };
}

/**
 * @param {NodeRedisCluster & { _keyPrefix?: unknown, _options?: any }} cluster
 * @returns {Client}
 */
function ofNodeRedisCluster(cluster) {
  /** @param {string} key */
  const masterOf = (key) => cluster.slots[slotOf(key)]?.master;
  /** @param {{ host: string, port: number }} home */
  const mapped = (home) => {
    const map = cluster._options?.nodeAddressMap;
    const address = addressOf(home);
    return (typeof map === 'function' ? map(address) : map?.[address]) ?? home;
  };
  return {
    prefix: String(cluster._keyPrefix ?? ''),
    isClosed: () => !cluster.isOpen,
    send: (args, key) => cluster.sendCommand(key, false, args),
    async connect(key, wanted) {
      // With `minimizeConnections`, the cluster connects to a node when the node is used first.
      const able = cluster.masters.filter(({ client }) => client === undefined || client.isReady);
      const nodes = able.map((node) => ({
        host: node.host,
        slots: async () => (await cluster.nodeClient(node)).sendCommand(['CLUSTER', 'SLOTS']),
      }));
      const home = (wanted.again && (await homeOf(nodes, slotOf(key), wanted.signal))) || masterOf(key);
      if (!home) throw new Error('the cluster is not connected');
      const used = cluster.masters.find(({ client }) => client)?.client;
      const like = used ?? (await unlessAborted(cluster.nodeClient(home), wanted.signal));
      return duplicateOfNodeRedis(like, mapped(home), wanted, addressOf(home));
    },
    learn: async () => {},
    database: () => undefined,
    repeats: () => 0,
    at: (key) => masterOf(key) && addressOf(masterOf(key)),
    node: (key) => addressOf(masterOf(key) ?? {}),
  };
}

/**
 * @param {NodeRedisSentinel & { _keyPrefix?: unknown, commandOptions?: any }} sentinel
 * @returns {Client}
 */
function ofNodeRedisSentinel(sentinel) {
  const at = () => addressOf(sentinel.getMasterNode() ?? {});
  /** How often a sentinel client has sent one of these commands again, although a copy may have been executed. */
  let resent = 0;
  return {
    prefix: String(sentinel._keyPrefix ?? ''),
    isClosed: () => !sentinel.isOpen,
    send: (args) => {
      /** How many copies may have been executed. */
      let copies = 0;
      return sentinel._execute(false, async (/** @type {any} */ client) => {
        if (copies > 0) resent += 1;
        copies += 1;
        try {
          return await client.sendCommand(args, sentinel.commandOptions);
        } catch (error) {
          if (isNotExecuted(error)) copies -= 1;
          throw error;
        }
      });
    },
    // The pool has one connection by default, so the client of the primary is borrowed for a moment only. Its duplicate
    // takes longer to connect, and is made afterwards.
    async connect(_, wanted) {
      const lent = sentinel._execute(false, async (client) => ({ like: client, place: at() }));
      const { like, place } = await unlessAborted(lent, wanted.signal);
      return duplicateOfNodeRedis(like, {}, wanted, place);
    },
    learn: async () => {},
    database: () => undefined,
    repeats: () => resent,
    at,
    node: () => '',
  };
}

/** @param {any} client */
function stateOfNodeRedis(client) {
  // The result of createClient inherits from the client that sends.
  const behind = client._self ?? client;
  const make = () => {
    const state = new State(() => client.sendCommand(['CLIENT', 'INFO']), () => client.isReady);
    hearReset(behind, state);
    return state;
  };
  const read = (/** @type {any[]} */ [args], /** @type {Promise<unknown>} */ reply) =>
    isChange(args[0]) ? { command: args.map(String), reply } : undefined;
  return stateOf(behind, make, read, 'reconnecting');
}

/**
 * Notices that the program resets the client's connection: its `reset` sends nothing through `sendCommand`. The client
 * then logs in and selects as on a new connection.
 *
 * @param {any} client
 * @param {InstanceType<typeof State>} state
 */
function hearReset(client, state) {
  const { reset } = client;
  if (typeof reset !== 'function') return;
  const value = async function (/** @type {any[]} */ ...words) {
    state.ended();
    try {
      // @ts-expect-error `this` is the client, or one that inherits from it
      return await reset.apply(this, words);
    } finally {
      state.ended(); // the server may have been asked in between
    }
  };
  Object.defineProperty(client, 'reset', { value, configurable: true, enumerable: false, writable: true });
}

/**
 * @param {NodeRedisClient} client
 * @param {{ host?: string, port?: number }} where the server; empty: that of the client
 * @param {Wanted} wanted
 * @param {string} [at]
 */
async function duplicateOfNodeRedis(client, { host, port }, { signal, again, database, onMessage }, at) {
  const state = stateOfNodeRedis(client);
  const present = { ...(await state.look(again)), ...(database !== undefined && { database }) };
  signal?.throwIfAborted();
  const { login } = state.profile;
  const { socket, commandOptions } = client.options ?? {};
  // `destroy` does not end a connection that is being made, this signal does.
  const closing = new AbortController();
  /** @type {any} */
  const own = client.duplicate({
    ...(onMessage && { RESP: 2, clientSideCache: undefined, maintNotifications: 'disabled' }),
    ...(login && { username: login.username, password: login.password, credentialsProvider: undefined }),
    ...(present.name && { name: present.name }),
    // A URL would say the database again.
    ...(present.database !== undefined && { database: present.database, ...(socket && { url: undefined }) }),
    socket: {
      ...{ ...socket, ...(port && { host, port }), socketTimeout: undefined, reconnectStrategy: false },
      signal: closing.signal,
    },
    commandOptions: { ...commandOptions, timeout: undefined },
    disableOfflineQueue: false,
    pingInterval: undefined,
  });
  const close = () => {
    if (own.isOpen) own.destroy();
    closing.abort();
  };
  /** @type {Promise<void>} */
  const closed = new Promise((resolve) => {
    own.once('end', () => resolve());
    own.on('error', () => resolve()); // it does not connect again
  });
  await orElse(unlessAborted(own.connect(), signal), close);
  await orElse(unlessAborted(state.compare(() => own.sendCommand(['CLIENT', 'INFO']), present), signal), close);
  return new Connection({
    send: (args) => own.sendCommand(args),
    subscribe: (channel) => own.subscribe(channel, onMessage),
    ...{ closed, close, at },
    database: present.database,
  });
}

module.exports = { ofNodeRedis, ofNodeRedisCluster, ofNodeRedisSentinel };
