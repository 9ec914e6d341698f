/** The two clients as this package needs them: to send a command, and to have a connection of one's own. */

/**
 * @typedef {import('./index.js').IoredisClient} IoredisClient
 * @typedef {import('./index.js').NodeRedisClient} NodeRedisClient
 *
 * @typedef {object} Connection a connection that nobody else uses, and that is not made again when it breaks
 * @property {(args: string[]) => Promise<unknown>} send
 * @property {Promise<void>} closed fulfilled when it has ended, from whichever side
 * @property {() => void} close
 *
 * @typedef {object} Client the client of the program, shared with whatever else it does
 * @property {string} prefix what the client is set to put before every key
 * @property {(args: string[]) => Promise<unknown>} send
 * @property {() => Promise<Connection>} connect
 */

/**
 * @param {IoredisClient | NodeRedisClient} client
 * @returns {Client}
 */
export function clientOf(client) {
  if ('call' in client && typeof client.call === 'function' && !('isCluster' in client && client.isCluster)) {
    return ofIoredis(client);
  }
  if ('sendCommand' in client && 'isReady' in client && typeof client.duplicate === 'function') {
    return ofNodeRedis(/** @type {NodeRedisClient} */ (client));
  }
  throw new TypeError('dlock needs a client of ioredis or of node-redis for one server, not a cluster or a pool');
}

/**
 * @param {IoredisClient} client
 * @returns {Client}
 */
function ofIoredis(client) {
  return {
    prefix: String(client.options.keyPrefix ?? ''),
    send: ([command = '', ...args]) => client.call(command, ...args),
    async connect() {
      const own = client.duplicate({
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
      own.on('error', (error) => (why = error));
      const closed = new Promise((resolve) => own.once('end', () => resolve(undefined)));
      await own.connect().catch((error) => Promise.reject(why ?? error));
      const send = (/** @type {string[]} */ [command = '', ...args]) => own.call(command, ...args);
      return { send, closed, close: () => own.disconnect() };
    },
  };
}

/**
 * @param {NodeRedisClient} client
 * @returns {Client}
 */
function ofNodeRedis(client) {
  const { socket, commandOptions, keyPrefix } = client.options ?? {};
  return {
    prefix: String(keyPrefix ?? ''),
    send: (args) => client.sendCommand(args),
    async connect() {
      const own = client.duplicate({
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
      return { send: (args) => own.sendCommand(args), closed, close: () => void (own.isOpen && own.destroy()) };
    },
  };
}
