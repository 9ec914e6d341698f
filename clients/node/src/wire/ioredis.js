'use strict';
/** Clients, clusters and Sentinel clients of ioredis. */
const slotOf = require('cluster-key-slot');

const { Connection, orElse } = require('./connection.js');
const { isMoving, isNotExecuted } = require('../errors.js');
const { SENTINEL } = require('../limits.js');
const { addressOf, homeOf } = require('./nodes.js');
const { isChange } = require('../profile.js');
const { State, stateOf } = require('./state.js');
const { unlessAborted } = require('../time.js');

/**
 * @typedef {import('../index.js').IoredisClient} IoredisClient
 * @typedef {import('../index.js').IoredisCluster} IoredisCluster
 * @typedef {import('./clients.js').Client} Client
 * @typedef {import('./clients.js').Wanted} Wanted
 */

/** How often a command follows the redirections of a cluster, before ioredis has to find the node. */
const MOST_REDIRECTIONS = 3;

/**
 * Returns a client of one server, or of Sentinels, as this package uses it.
 *
 * @param {IoredisClient} client
 * @returns {Client}
 */
function ofIoredis(client) {
  const hasSentinels = isOfSentinels(client);
  const state = stateOfIoredis(client);
  const repeats = repeatsOf(client);
  return {
    prefix: String(client.options.keyPrefix ?? ''),
    isClosed: () => client.status === 'end',
    send: ([command = '', ...args]) => client.call(command, ...args),
    connect: (_, wanted) => {
      const where = hasSentinels && !wanted.again ? whereIs(client) : {};
      return duplicateOfIoredis(client, where, wanted, hasSentinels ? peerOf : () => undefined);
    },
    learn: () => state.learn(),
    database: () => state.database,
    repeats: () => repeats.count,
    at: () => (hasSentinels ? peerOf(client.stream) : undefined),
    node: () => '',
  };
}

/**
 * Returns a client of a cluster as this package uses it.
 *
 * @param {IoredisCluster & { natMapper?: any, refreshSlotsCache?: any, on?: any, listeners?: any }} cluster
 * @returns {Client}
 */
function ofIoredisCluster(cluster) {
  /** How often ioredis may have sent one of these commands again, after it had lost the connection to a node. */
  let resent = 0;
  const options = /** @type {{ keyPrefix?: string, redisOptions?: { keyPrefix?: string } }} */ (cluster.options);
  /** @param {string} key */
  const nodeOf = (key) => {
    const address = cluster.slots[slotOf(key)]?.[0];
    return cluster.nodes('master').find(({ options }) => address === addressOf(options));
  };
  /**
   * @param {IoredisClient} node
   * @param {string} command
   * @param {string[]} args
   */
  const sendTo = async (node, command, args) => {
    const repeats = repeatsOf(node);
    const { count } = repeats;
    try {
      return await node.call(command, ...args);
    } finally {
      // With `clusterNodeRetryStrategy`, the client of a node sends commands again on a new socket.
      if (repeats.count !== count) resent += 1;
    }
  };
  /**
   * Returns the node to which an answer leads, ready for the same command; undefined: ioredis does not know the node.
   *
   * @param {unknown} answer
   */
  const redirected = (answer) => {
    const [, kind, address] = /^(MOVED|ASK) \d+ (\S+:\d+)$/.exec(answer instanceof Error ? answer.message : '') ?? [];
    if (!address) return undefined;
    const mapped = addressOf(cluster.natMapper(address));
    const node = cluster.nodes('master').find(({ options }) => mapped === addressOf(options));
    if (kind === 'ASK') node?.call('ASKING').catch(() => {});
    return node;
  };
  // The program may log in again on the client of a node. The state of that client notices the new login.
  for (const node of cluster.nodes('master')) stateOfIoredis(node);
  if (!cluster.listeners?.('+node').includes(stateOfIoredis)) cluster.on?.('+node', stateOfIoredis);
  return {
    prefix: String(options.keyPrefix ?? options.redisOptions?.keyPrefix ?? ''),
    isClosed: () => cluster.status === 'end',
    // ioredis does not know which word of these commands is the key, and would send them to any node first.
    async send([command = '', ...args], key) {
      let node = nodeOf(key);
      for (let redirections = 0; node && redirections < MOST_REDIRECTIONS; redirections += 1) {
        try {
          return await sendTo(node, command, args);
        } catch (error) {
          if (!isMoving(error)) throw error;
          cluster.refreshSlotsCache();
          node = redirected(error);
        }
      }
      resent += 1;
      return cluster.call(command, ...args);
    },
    async connect(key, wanted) {
      const nodes = cluster.nodes('master');
      // 'wait': ioredis connects to a node only when the node is used for the first time.
      const able = nodes.filter(({ status }) => status === 'ready' || status === 'wait');
      const home = wanted.again && (await homeOf(able.map(asked), slotOf(key), wanted.signal));
      const node = nodeOf(key) ?? nodes[0];
      if (!node) throw new Error('the cluster is not connected');
      const login = loginOf(/** @type {{ redisOptions?: object }} */ (cluster.options).redisOptions ?? {});
      const where = home ? cluster.natMapper(`${home.host}:${home.port}`) : {};
      return duplicateOfIoredis(node, { ...login, ...where }, wanted, peerOf);
    },
    learn: async () => {},
    database: () => undefined,
    repeats: () => resent,
    at: (key) => peerOf(nodeOf(key)?.stream),
    node: (key) => cluster.slots[slotOf(key)]?.[0] ?? '',
  };
}

/**
 * Returns the login for new connections to a cluster.
 *
 * @param {{ username?: string, password?: string }} options
 */
function loginOf({ username, password }) {
  return { ...(username !== undefined && { username }), ...(password !== undefined && { password }) };
}

/**
 * Returns the state of a client's connection. It notices the commands that change the state.
 *
 * @param {any} client
 */
function stateOfIoredis(client) {
  const ask = () => client.call('CLIENT', 'INFO');
  const database = () => (client.prevCondition ?? client.condition)?.select ?? client.options.db ?? 0;
  const make = () => new State(ask, () => client.status === 'ready', database);
  // Until the client is ready, its own commands log in and select with its options: they are no change.
  const read = (/** @type {any[]} */ [command]) =>
    client.status === 'ready' && isChange(command.name)
      ? { command: [command.name, ...command.args.map(String)], reply: command.promise }
      : undefined;
  return stateOf(client, make, read, 'close');
}

/** @type {WeakMap<object, { count: number }>} */
const repeatsByClient = new WeakMap();

/**
 * Counts how often a client writes one of this package's commands again although a copy may have been executed: ioredis
 * repeats unanswered commands on a new socket.
 *
 * @param {any} client
 */
function repeatsOf(client) {
  const known = repeatsByClient.get(client);
  if (known) return known;
  const repeats = { count: 0 };
  repeatsByClient.set(client, repeats);
  const written = new WeakSet();
  const replace = (/** @type {string} */ name, /** @type {(...words: any[]) => void} */ before) => {
    const method = client[name];
    if (typeof method !== 'function') return;
    const value = function (/** @type {any[]} */ ...words) {
      before(...words);
      // @ts-expect-error `this` is the client, or one that inherits from it
      return method.apply(this, words);
    };
    Object.defineProperty(client, name, { value, configurable: true, enumerable: false, writable: true });
  };
  // A client that is not ready keeps the command, and sends it with another call.
  replace('sendCommand', (command) => {
    if (client.status !== 'ready' || !client.stream?.writable || !command.name.startsWith('DLOCK.')) return;
    if (written.has(command)) repeats.count += 1;
    written.add(command);
  });
  // With `reconnectOnError`, ioredis repeats commands that the server has refused, too.
  replace('handleReconnection', (error, { command }) => {
    if (isNotExecuted(error)) written.delete(command);
  });
  return repeats;
}

/** @param {IoredisClient} client */
function isOfSentinels(client) {
  return Boolean(/** @type {{ sentinels?: unknown }} */ (client.options).sentinels);
}

/**
 * Returns a node in the form that `homeOf` asks.
 *
 * @param {IoredisClient} node
 */
function asked(node) {
  const { host } = /** @type {{ host?: string }} */ (node.options);
  return { host: host ?? '', slots: () => node.call('CLUSTER', 'SLOTS') };
}

/**
 * Returns the options for a connection to the primary to which a client of Sentinels is connected now. If that server
 * is no primary any more, the next attempt (`again`) asks the Sentinels. With TLS, each connection asks the Sentinels,
 * because a certificate is for a name and not for an address.
 *
 * @param {any} client
 */
function whereIs({ status, stream, options }) {
  if (status !== 'ready' || options.tls || !stream?.remotePort) return {};
  return { sentinels: undefined, host: stream.remoteAddress, port: stream.remotePort };
}

/**
 * Returns the address of the server at the other end of a socket.
 *
 * @param {any} stream
 */
function peerOf(stream) {
  return stream?.remotePort && `${stream.remoteAddress}:${stream.remotePort}`;
}

/**
 * Makes a connection like the client's: the same login, name and database, unless `where` or `wanted` say otherwise.
 * The connection does not reconnect, and ioredis sets no time limits for its commands: this package does.
 *
 * @param {IoredisClient} client
 * @param {object} where the options that differ from those of the client
 * @param {Wanted} wanted
 * @param {(stream: unknown) => string | undefined} atOf returns the address of the server for `Connection.at`
 */
async function duplicateOfIoredis(client, where, { signal, again, database, onMessage }, atOf) {
  const state = stateOfIoredis(client);
  const present = { ...(await state.look(again)), ...(database !== undefined && { database }) };
  signal?.throwIfAborted();
  const { login } = state.profile;
  /** @type {any} */
  const own = client.duplicate({
    ...(onMessage && { protocol: 2 }),
    ...(login && { username: login.username, password: login.password }),
    ...(present.name && { connectionName: present.name }),
    ...where,
    db: present.database,
    lazyConnect: true,
    enableReadyCheck: false,
    retryStrategy: null,
    reconnectOnError: null,
    commandTimeout: undefined,
    socketTimeout: undefined,
    blockingTimeout: undefined,
    ...(isOfSentinels(client) && { connectTimeout: SENTINEL.connect, sentinelCommandTimeout: SENTINEL.answer }),
  });
  /** @type {unknown} */
  let why;
  own.on('error', (/** @type {unknown} */ error) => (why = error));
  const close = () => {
    own.disconnect();
    own.stream?.destroy(); // `disconnect` alone waits until the server closes its side.
  };
  /** @type {Promise<void>} */
  const closed = new Promise((resolve) => own.once('end', () => resolve()));
  const connecting = own.connect().catch((/** @type {unknown} */ error) => Promise.reject(why ?? error));
  await orElse(unlessAborted(connecting, signal), close);
  await orElse(unlessAborted(state.compare(() => own.call('CLIENT', 'INFO'), present), signal), close);
  if (onMessage) own.on('message', onMessage);
  return new Connection({
    send: ([command = '', ...args]) => own.call(command, ...args),
    subscribe: (channel) => own.subscribe(channel),
    closed,
    close,
    at: atOf(own.stream),
    database: present.database,
  });
}

module.exports = { ofIoredis, ofIoredisCluster };
