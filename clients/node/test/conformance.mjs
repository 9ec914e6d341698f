// The adapter of the conformance suite (tests/conformance/README.md): node conformance.mjs ioredis | node-redis
import { createInterface } from 'node:readline';

import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { DLock, LockLost, NoAnswer, NotGranted, Session, TooFewReplicas } from 'redis-dlock';

const OPEN = {
  ioredis(port) {
    const client = new Redis({ host: '127.0.0.1', port });
    client.on('error', () => {});
    return client;
  },
  'node-redis'(port) {
    const client = createClient({ socket: { host: '127.0.0.1', port } });
    client.on('error', () => {});
    client.connect().catch(() => {}); // an acquisition reports the failure
    return client;
  },
};
const open = OPEN[process.argv[2]];
const locks = new Map();
const cancelled = new Error('cancelled');

/** A client and its named session, which all locks with `named` share. */
let shared;

async function sharedBy(port) {
  if (!shared?.session.isOpen) {
    const client = open(port);
    shared = { client, session: await new Session(client).open() };
  }
  return shared;
}

const TASKS = {
  async acquire({ lock, port, name, keep, named, slots, wait, outage, replicas_timeout: replicasTimeout, ...same }) {
    const cancel = new AbortController();
    const entry = { cancel };
    locks.set(lock, entry);
    const { client, ...its } = named ? await sharedBy(port) : { client: open(port), session: same.session };
    const { lease, mode, replicas } = same;
    const limits = { wait: wait ?? Infinity, outage: outage ?? undefined, replicasTimeout };
    const options = { lease, replicas, ...its, ...limits, signal: cancel.signal };
    const dlock = new DLock(client);
    const isPermit = slots !== null;
    const acquiring = isPermit ? dlock.semaphore(name, slots).acquire({ ...options, slot: true }) : undefined;
    entry.lock = await (acquiring ?? dlock.acquire(name, { ...options, mode }));
    if (keep) entry.lock.keep();
    return { result: 'granted', token: entry.lock.token, ...(isPermit && { slot: entry.lock.slot }) };
  },
  async release({ lock }) {
    const held = locks.get(lock).lock;
    if (!held) return { result: 'failed' };
    return { result: (await held.release()) ? 'released' : 'lost' };
  },
  async extend({ lock, lease }) {
    await locks.get(lock).lock.extend(lease);
    return { result: 'extended' };
  },
  async lost({ lock }) {
    const { signal } = locks.get(lock).lock;
    if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
    return { result: signal.reason instanceof LockLost ? 'lost' : 'error' };
  },
  async cancel({ lock }) {
    locks.get(lock).cancel.abort(cancelled);
    return { result: 'ok' };
  },
};

function resultOf(error, task) {
  if (error === cancelled) return 'canceled';
  if (error instanceof NotGranted) return 'refused';
  if (error instanceof LockLost) return 'lost';
  if (error instanceof TooFewReplicas) return 'too-few-replicas';
  if (/is the dlock module loaded/.test(error.message)) return 'no-module';
  if (task !== 'acquire') return 'failed';
  return error instanceof NoAnswer ? 'unreachable' : 'error';
}

console.log(JSON.stringify({ features: ['cancel', 'outage', 'named', 'slots'] }));
for await (const line of createInterface({ input: process.stdin })) {
  const { id, do: task, ...request } = JSON.parse(line);
  TASKS[task](request).then(
    (answer) => console.log(JSON.stringify({ id, ...answer })),
    (error) => console.log(JSON.stringify({ id, result: resultOf(error, task), message: String(error) })),
  );
}
process.exit();
