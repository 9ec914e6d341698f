'use strict';
/** The clients as this package needs them: to send a command, and to have a connection of one's own. */
const slotOf = require('cluster-key-slot');

const { Connection } = require('./connection.js');
const { isMoving } = require('./errors.js');
const { unlessAborted } = require('./time.js');

/** How long a Sentinel may take before the next one is asked, in ms. */
const SENTINEL_CONNECT = 1000;
const SENTINEL_ANSWER = 300;

/**
 * @typedef {import('./index.js').IoredisClient} IoredisClient
 * @typedef {import('./index.js').IoredisCluster} IoredisCluster
 * @typedef {import('./index.js').NodeRedisClient} NodeRedisClient
 * @typedef {import('./index.js').NodeRedisCluster} NodeRedisCluster
 * @typedef {import('./index.js').NodeRedisSentinel} NodeRedisSentinel
 *
 * @typedef {object} Wanted what a connection is for
 * @property {AbortSignal | undefined} signal ends the attempt
 * @property {boolean} [again] the last attempt failed: a cluster's nodes are asked which of them has the key now
 * @property {(() => void) | undefined} [onMessage] makes it one for version 2 of the protocol, in which messages about
 *   keys are like others
 *
 * @typedef {object} Client the client of the program, shared with whatever else it does
 * @property {string} prefix what the client is set to put before every key
 * @property {() => boolean} isClosed the program has closed it, or has not connected it
 * @property {(args: string[], key: string) => Promise<unknown>} send
 * @property {(key: string, wanted: Wanted) => Promise<Connection>} connect to the server that has the key
 * @property {(key: string) => unknown} socket what it sends on now, if it repeats unanswered commands by itself on the
 *   next one
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
  throw new TypeError('client is a client, a cluster or a sentinel of ioredis or node-redis');
}

/** @param {any} client */
function isCluster(client) {
  return client?.isCluster === true || typeof client?.nodeClient === 'function';
}

/**
 * @param {IoredisClient} client
 * @returns {Client}
 */
function ofIoredis(client) {
  const hasSentinels = isOfSentinels(client);
  return {
    prefix: String(client.options.keyPrefix ?? ''),
    isClosed: () => client.status === 'end',
    send: ([command = '', ...args]) => client.call(command, ...args),
    connect: (_, wanted) => duplicateOfIoredis(client, {}, wanted, hasSentinels ? peerOf : () => undefined),
    socket: () => client.stream,
    at: () => (hasSentinels ? peerOf(client.stream) : undefined),
    node: () => '',
  };
}

/**
 * @param {IoredisCluster & { natMapper?: any, refreshSlotsCache?: any }} cluster
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
    isClosed: () => cluster.status === 'end',
    // ioredis does not know where the key of these commands is, so it would ask any node first.
    async send([command = '', ...args], key) {
      try {
        const node = nodeOf(key);
        if (node) return await node.call(command, ...args);
      } catch (error) {
        if (!isMoving(error)) throw error;
        cluster.refreshSlotsCache();
      }
      return cluster.call(command, ...args);
    },
    async connect(key, wanted) {
      const nodes = cluster.nodes('master');
      // It connects to a node when the node is used first.
      const able = nodes.filter(({ status }) => status === 'ready' || status === 'wait');
      const home = wanted.again && (await homeOf(able.map(asked), slotOf(key), wanted.signal));
      const node = nodeOf(key) ?? nodes[0];
      if (!node) throw new Error('the cluster is not connected');
      return duplicateOfIoredis(node, home ? cluster.natMapper(`${home.host}:${home.port}`) : {}, wanted, peerOf);
    },
    socket: (key) => nodeOf(key)?.stream,
    at: (key) => peerOf(nodeOf(key)?.stream),
    node: (key) => cluster.slots[slotOf(key)]?.[0] ?? '',
  };
}

/** @param {IoredisClient} client */
function isOfSentinels(client) {
  return Boolean(/** @type {{ sentinels?: unknown }} */ (client.options).sentinels);
}

/** @param {IoredisClient} node */
function asked(node) {
  const { host } = /** @type {{ host?: string }} */ (node.options);
  return { host: host ?? '', slots: () => node.call('CLUSTER', 'SLOTS') };
}

/** @param {object} options of a node's client */
function addressOf(options) {
  const { host, port } = /** @type {{ host?: string, port?: number }} */ (options);
  return `${host}:${port}`;
}

/** @param {any} stream */
function peerOf(stream) {
  return stream?.remotePort && `${stream.remoteAddress}:${stream.remotePort}`;
}

/**
 * @param {IoredisClient} client
 * @param {object} where other than the client
 * @param {Wanted} wanted
 * @param {(stream: unknown) => string | undefined} atOf
 */
async function duplicateOfIoredis(client, where, { signal, onMessage }, atOf) {
  /** @type {any} */
  const own = client.duplicate({
    ...(onMessage && { protocol: 2 }),
    ...where,
    lazyConnect: true,
    enableReadyCheck: false,
    retryStrategy: null,
    reconnectOnError: null,
    commandTimeout: undefined,
    socketTimeout: undefined,
    blockingTimeout: undefined,
    ...(isOfSentinels(client) && { connectTimeout: SENTINEL_CONNECT, sentinelCommandTimeout: SENTINEL_ANSWER }),
  });
  /** @type {unknown} */
  let why;
  own.on('error', (/** @type {unknown} */ error) => (why = error));
  const close = () => {
    own.disconnect();
    own.stream?.destroy(); // it would wait for the other side
  };
  /** @type {Promise<void>} */
  const closed = new Promise((resolve) => own.once('end', () => resolve()));
  const connecting = own.connect().catch((/** @type {unknown} */ error) => Promise.reject(why ?? error));
  await orElse(unlessAborted(connecting, signal), close);
  if (onMessage) own.on('message', onMessage);
  return new Connection({
    send: ([command = '', ...args]) => own.call(command, ...args),
    subscribe: (channel) => own.subscribe(channel),
    closed,
    close,
    at: atOf(own.stream),
  });
}

/**
 * @param {NodeRedisClient} client
 * @returns {Client}
 */
function ofNodeRedis(client) {
  return {
    prefix: String(client.options?.keyPrefix ?? ''),
    isClosed: () => !client.isOpen,
    send: (args) => client.sendCommand(args),
    connect: (_, wanted) => duplicateOfNodeRedis(client, {}, wanted),
    socket: () => undefined,
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
      // With `minimizeConnections`, it connects to a node when the node is used first.
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
    socket: () => undefined,
    at: (key) => masterOf(key) && addressOf(masterOf(key)),
    node: (key) => addressOf(masterOf(key) ?? {}),
  };
}

/**
 * @param {NodeRedisSentinel & { _keyPrefix?: unknown }} sentinel
 * @returns {Client}
 */
function ofNodeRedisSentinel(sentinel) {
  const at = () => addressOf(sentinel.getMasterNode() ?? {});
  return {
    prefix: String(sentinel._keyPrefix ?? ''),
    isClosed: () => !sentinel.isOpen,
    send: (args) => sentinel.sendCommand(false, args),
    // Its pool lends the client of the primary only for as long as this takes.
    connect(_, wanted) {
      const connecting = sentinel._execute(false, (client) => duplicateOfNodeRedis(client, {}, wanted, at()));
      return unlessAborted(connecting, wanted.signal);
    },
    socket: () => undefined,
    at,
    node: () => '',
  };
}

/**
 * @param {NodeRedisClient} client
 * @param {{ host?: string, port?: number }} where other than the client
 * @param {Wanted} wanted
 * @param {string} [at]
 */
async function duplicateOfNodeRedis(client, { host, port }, { signal, onMessage }, at) {
  const { socket, commandOptions } = client.options ?? {};
  /** @type {any} */
  const own = client.duplicate({
    ...(onMessage && { RESP: 2, clientSideCache: undefined, maintNotifications: 'disabled' }),
    socket: { ...socket, ...(port && { host, port }), socketTimeout: undefined, reconnectStrategy: false },
    commandOptions: { ...commandOptions, timeout: undefined },
    disableOfflineQueue: false,
    pingInterval: undefined,
  });
  const close = () => void (own.isOpen && own.destroy());
  /** @type {Promise<void>} */
  const closed = new Promise((resolve) => {
    own.once('end', () => resolve());
    own.on('error', () => resolve()); // it does not connect again
  });
  await orElse(unlessAborted(own.connect(), signal), close);
  return new Connection({
    send: (args) => own.sendCommand(args),
    subscribe: (channel) => own.subscribe(channel, onMessage),
    closed,
    close,
    at,
  });
}

/**
 * @param {Promise<unknown>} promise
 * @param {() => void} otherwise what to do if it rejects
 */
async function orElse(promise, otherwise) {
  try {
    await promise;
  } catch (error) {
    otherwise();
    throw error;
  }
}

/**
 * Which node has a slot now. The nodes of a cluster that can be reached are asked, and the first answer counts. If it
 * is out of date, the next attempt asks again.
 *
 * @param {{ host: string, slots: () => Promise<unknown> }[]} nodes
 * @param {number} slot
 * @param {AbortSignal | undefined} signal
 * @returns {Promise<{ host: string, port: number } | undefined>}
 */
async function homeOf(nodes, slot, signal) {
  if (nodes.length === 0) return undefined;
  const answers = nodes.map(async ({ host, slots }) => {
    const ranges = /** @type {[number, number, [string, number]][]} */ (await slots());
    const range = ranges.find(([first, last]) => first <= slot && slot <= last);
    if (!range) throw new Error('the cluster has no node for the key');
    const [name, port] = range[2];
    return { host: name || host, port: Number(port) };
  });
  return unlessAborted(Promise.any(answers), signal);
}

module.exports = { clientOf, isCluster };
