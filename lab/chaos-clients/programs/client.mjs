// A program of chaos with the Node.js package (README.md): node client.mjs ioredis | node-redis
import { createInterface } from 'node:readline';

import { Cluster, Redis } from 'ioredis';
import { createClient, createCluster, createSentinel } from 'redis';
import { DLock, LockLost, NoAnswer, NotGranted, Session, TooFewReplicas } from 'redis-dlock';

const host = '127.0.0.1';
const OPEN = {
  ioredis({ by, db, ports }) {
    const nodes = ports.map((port) => ({ host, port }));
    if (by === 'cluster') return new Cluster(nodes);
    return new Redis(by === 'sentinel' ? { sentinels: nodes, name: 'locks', db } : { ...nodes[0], db });
  },
  'node-redis'({ by, db, ports }) {
    const nodes = ports.map((port) => ({ host, port }));
    if (by === 'cluster') return createCluster({ rootNodes: nodes.map((socket) => ({ socket })) });
    if (by === 'sentinel') {
      return createSentinel({ name: 'locks', sentinelRootNodes: nodes, nodeClientOptions: { database: db } });
    }
    return createClient({ socket: nodes[0], database: db });
  },
};
const micros = () => Number(process.hrtime.bigint() / 1000n);
const canceled = new Error('canceled');
/** The clients and sessions of each database, which all workers share. */
const clients = new Map();
const sessions = new Map();
/** The acquisition of each worker: what cancels it, and its lock. */
const workers = new Map();

function clientOf(request) {
  if (!clients.has(request.db)) {
    const client = OPEN[process.argv[2]](request);
    client.on('error', () => {});
    client.connect?.()?.catch(() => {}); // a failure shows when a lock is acquired
    clients.set(request.db, client);
  }
  return clients.get(request.db);
}

async function sessionOf(request) {
  if (!sessions.get(request.db)?.isOpen) {
    const session = new Session(clientOf(request), { timeout: request.timeout });
    await session.open();
    sessions.set(request.db, session);
  }
  return sessions.get(request.db);
}

/** Returns what a lock says of itself, with the times before and after the question. */
function claim(lock) {
  const before = micros();
  const { remaining } = lock;
  return { remaining, lost: lock.signal.aborted, at: [before, micros()] };
}

const TASKS = {
  async acquire({ worker, name, mode, slots, lease, wait, keep, named, replicas, ...request }) {
    const cancel = new AbortController();
    const entry = { cancel };
    workers.set(worker, entry);
    const session = named ? await sessionOf(request) : false;
    const options = { lease, wait, replicas, session, renew: keep, signal: cancel.signal };
    const dlock = new DLock(clientOf(request));
    const acquiring = slots === null ? undefined : dlock.semaphore(name, slots).acquire({ ...options, slot: true });
    entry.lock = await (acquiring ?? dlock.acquire(name, { ...options, mode }));
    return { result: 'granted', token: entry.lock.token, slot: entry.lock.slot, ...claim(entry.lock) };
  },
  held: async ({ worker }) => ({ result: 'held', ...claim(workers.get(worker).lock) }),
  async release({ worker }) {
    const { lock } = workers.get(worker);
    const told = claim(lock);
    try {
      return { ...told, result: (await lock.release()) ? 'released' : 'lost' };
    } catch (error) {
      return { ...told, result: error instanceof LockLost ? 'lost' : 'failed', message: String(error) };
    }
  },
  async cancel({ worker }) {
    workers.get(worker)?.cancel.abort(canceled);
    return { result: 'ok' };
  },
};

function resultOf(error) {
  if (error === canceled) return 'canceled';
  if (error instanceof NotGranted) return 'refused';
  if (error instanceof LockLost) return 'lost';
  if (error instanceof TooFewReplicas) return 'too-few-replicas';
  return error instanceof NoAnswer ? 'unreachable' : 'error';
}

console.log(JSON.stringify({ features: ['named', 'slots', 'replicas', 'cancel'] }));
for await (const line of createInterface({ input: process.stdin })) {
  const { id, do: task, ...request } = JSON.parse(line);
  TASKS[task](request).then(
    (answer) => console.log(JSON.stringify({ id, ...answer })),
    (error) => {
      const at = [micros(), micros()];
      console.log(JSON.stringify({ id, result: resultOf(error), message: String(error), at }));
    },
  );
}
process.exit();
