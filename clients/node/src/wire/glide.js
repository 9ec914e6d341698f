'use strict';
/**
 * Standalone clients of Valkey GLIDE. A GLIDE client has one connection, on which a command that blocks holds up all
 * others. By default, GLIDE gives a command up after 250 ms. A wait therefore has a client of its own, without that
 * limit.
 */

const { Connection, orElse } = require('./connection.js');
const { State } = require('./state.js');
const { unlessAborted } = require('../time.js');

/**
 * @typedef {import('./clients.js').Client} Client
 * @typedef {import('./clients.js').Wanted} Wanted
 */

/** The `requestTimeout` of a client that waits, in ms: about 25 days. The limits of this package end its requests. */
const NO_LIMIT = 2 ** 31 - 1;
/** Makes GLIDE read replies as strings, not bytes: the value of its `Decoder.String`. */
const STRINGS = { decoder: 1 };

/** The server's error codes, by the names that GLIDE gives to these kinds of errors. */
const CODES = new Map(
  Object.entries({
    ResponseError: 'ERR',
    BusyLoadingError: 'LOADING',
    ReadOnly: 'READONLY',
    MasterDown: 'MASTERDOWN',
    TryAgain: 'TRYAGAIN',
    ClusterDown: 'CLUSTERDOWN',
    CrossSlot: 'CROSSSLOT',
    ExecAbortError: 'EXECABORT',
    PermissionDenied: 'NOPERM',
  }),
);

/**
 * @param {any} client
 * @returns {Client}
 */
function ofGlide(client) {
  if (!client.config?.addresses) throw new TypeError('the GlideClient does not tell its configuration: take GLIDE 2');
  const state = new State(
    () => send(client, ['CLIENT', 'INFO']),
    () => !client.isClosed,
    () => client.config?.databaseId ?? 0,
  );
  return {
    prefix: '',
    isClosed: () => client.isClosed,
    hidesReconnects: true,
    send: (args) => send(client, args),
    connect: (_, wanted) => duplicateOfGlide(client, state, wanted),
    learn: () => state.learn(),
    database: () => state.database,
    repeats: () => 0,
    at: () => undefined,
    node: () => '',
  };
}

/**
 * @param {any} client
 * @param {InstanceType<typeof State>} state
 * @param {Wanted} wanted
 */
async function duplicateOfGlide(client, state, { signal, again, database, onMessage }) {
  if (onMessage) throw new TypeError('watch needs a client of ioredis or node-redis');
  const present = { ...(await state.look(again)), ...(database !== undefined && { database }) };
  signal?.throwIfAborted();
  const making = client.constructor.createClient({
    ...client.config,
    ...(present.database !== undefined && { databaseId: present.database }),
    ...{ requestTimeout: NO_LIMIT, readFrom: 'primary', pubsubSubscriptions: undefined },
  });
  await orElse(unlessAborted(making, signal), () => void making.then((/** @type {any} */ late) => late.close(), () => {}));
  const own = await making;
  let info = '';
  let unanswered = 0;
  /** @type {() => void} */
  let end = () => {};
  /** @type {Promise<void>} */
  const closed = new Promise((resolve) => (end = resolve));
  const close = () => {
    // GLIDE keeps the connection of a closed client until the server has answered. A request would wait in the queue
    // as long, so the program's client kills the connection.
    if (unanswered > 0 && !client.isClosed) send(client, killOf(info)).catch(() => {}); // the user may not kill
    if (!own.isClosed) own.close();
    end();
  };
  const ask = async () => (info = String(await send(own, ['CLIENT', 'INFO'])));
  await orElse(unlessAborted(state.compare(ask, present), signal), close);
  return new Connection({
    async send(args) {
      unanswered += 1;
      try {
        return await send(own, args);
      } finally {
        unanswered -= 1;
      }
    },
    subscribe: () => Promise.reject(new TypeError('there is no subscription here')),
    ...{ closed, close, at: undefined },
    database: present.database,
  });
}

/**
 * Returns the command that kills this connection, and none with the same id on another server.
 *
 * @param {string} info the reply to CLIENT INFO on the connection
 */
function killOf(info) {
  const of = (/** @type {string} */ name) => new RegExp(`(?:^| )${name}=(\\S+)`).exec(info)?.[1] ?? '0';
  return ['CLIENT', 'KILL', 'ID', of('id'), 'ADDR', of('addr'), 'LADDR', of('laddr')];
}

/**
 * @param {any} client
 * @param {string[]} args
 */
async function send(client, args) {
  try {
    return plain(await client.customCommand(args, STRINGS));
  } catch (error) {
    throw asAnswered(error);
  }
}

/**
 * Returns an error of the server with the server's own words. Other errors are returned as they are.
 *
 * @param {unknown} error
 */
function asAnswered(error) {
  const message = error instanceof Error ? error.message : '';
  const [, code, text] = /^([A-Z]{2,}[A-Z0-9]*): (.*)$/s.exec(message) ?? [];
  if (code) return new Error(`${code} ${text}`, { cause: error });
  const [, kind = '', rest] = /^An error was signalled by the server: - (\w+): (.*)$/s.exec(message) ?? [];
  const known = CODES.get(kind);
  return known ? new Error(`${known} ${rest}`, { cause: error }) : error;
}

/**
 * Returns the reply with a `Map` for each map, which GLIDE returns as a list of `{ key, value }`.
 *
 * @param {any} reply
 * @returns {unknown}
 */
function plain(reply) {
  if (!Array.isArray(reply)) return reply;
  const isMap = reply.length > 0 && reply.every((each) => each !== null && typeof each === 'object' && 'key' in each);
  return isMap ? new Map(reply.map(({ key, value }) => [key, plain(value)])) : reply.map(plain);
}

module.exports = { ofGlide };
