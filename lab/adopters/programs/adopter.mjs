// A program that uses the Node.js package as its README says (../README.md): node adopter.mjs ROLE NAME
// Programs with an odd number have ioredis, the others node-redis.
import { appendFile, readFile } from 'node:fs/promises';
import { setTimeout as pause } from 'node:timers/promises';

import { Cluster, Redis } from 'ioredis';
import { createClient, createCluster, createSentinel } from 'redis';
import { DLock } from 'redis-dlock';

const [role, name] = process.argv.slice(2);
const { ADOPTER_BY: by, ADOPTER_LEDGER: ledger } = process.env;
const replicas = Number(process.env.ADOPTER_REPLICAS);
const nodes = process.env.ADOPTER_PORTS.split(',').map((port) => ({ host: '127.0.0.1', port: Number(port) }));

const between = (least, most) => least + Math.random() * (most - least);
const whole = (limit) => Math.floor(Math.random() * limit);
const micros = () => Number(process.hrtime.bigint() / 1000n);
const stopping = new AbortController();
let visits = 0;

class Abandoned extends Error {}

function connect() {
  if (/[13579]$/.test(name)) {
    if (by === 'cluster') return new Cluster(nodes);
    return new Redis(by === 'sentinel' ? { sentinels: nodes, name: 'locks' } : nodes[0]);
  }
  if (by === 'sentinel') return createSentinel({ name: 'locks', sentinelRootNodes: nodes });
  if (by === 'cluster') return createCluster({ rootNodes: nodes.map((socket) => ({ socket })) });
  return createClient({ socket: nodes[0] });
}

/** An acquisition, whose events are written for the run that judges them (../README.md). */
class Visit {
  constructor(fields) {
    this.id = ++visits;
    this.tell('asking', fields);
  }

  tell(event, fields, at = [micros(), micros()]) {
    process.stdout.write(`${JSON.stringify({ event, id: this.id, at, ...fields })}\n`);
  }

  /** Tells what the lock says of itself, and returns whether it is held. */
  holds(event, lock, fields = {}) {
    const before = micros();
    const { remaining } = lock;
    const lost = lock.signal.aborted;
    this.tell(event, { remaining, lost, ...fields }, [before, micros()]);
    return remaining > 0 && !lost;
  }

  /** Runs a routine with the lock, with a line before and after. */
  async with(lock, fields, routine) {
    this.holds('inside', lock, { token: lock.token, ...fields });
    try {
      await routine();
    } finally {
      this.holds('leaving', lock);
    }
  }

  /** Works for a while, with a look at the lock every 100 ms. */
  async works(lock, ms) {
    const ends = performance.now() + ms;
    while (performance.now() < ends) {
      await pause(Math.min(100, Math.max(1, ends - performance.now())));
      if (!this.holds('still', lock)) throw new Abandoned('the lock is lost');
    }
  }

  /** Runs a routine that acquires the lock, and tells how that ends. The routine returns the fields of `left`. */
  async tells(acquires) {
    try {
      this.tell('left', await acquires());
    } catch (error) {
      const type = error instanceof Abandoned ? 'abandoned' : error.name;
      this.tell('error', { type, message: `${error.message}${error.cause ? ` (${error.cause})` : ''}` });
      await pause(200);
    }
  }
}

/** A web handler: pays an order, which other programs may be asked to pay at the same time. */
async function pay(dlock) {
  await pause(between(50, 250));
  const order = Math.floor(Date.now() / 500) - whole(3);
  const visit = new Visit({ lock: `pay:${order}`, lease: 3000, wait: 1000 });
  await visit.tells(async () => {
    const lock = await dlock.acquire(`pay:${order}`, { lease: 3000, wait: 1000, replicas });
    let released;
    try {
      await visit.with(lock, {}, () => charge(visit, lock, `${ledger}/${order}`));
    } finally {
      released = await lock.release();
    }
    return { lost: !released };
  });
}

/**
 * Pays once. The file plays a database that refuses tokens lower than one it has seen: ../rules.py leaves such rows
 * out.
 */
async function charge(visit, lock, order) {
  await appendFile(order, `begin ${lock.token} ${name}\n`);
  if ((await readFile(order, 'utf8')).includes('paid ')) return;
  await pause(between(20, 150)); // the provider is called
  if (visit.holds('still', lock)) await appendFile(order, `paid ${lock.token} ${name}\n`);
}

/** A worker of a pool: jobs of one customer run one at a time. */
async function serve(dlock) {
  const customer = `customer:${whole(4)}`;
  const visit = new Visit({ lock: customer, lease: 2000, wait: 2000 });
  const ms = Array.from({ length: 1 + whole(6) }, () => between(50, 400)).reduce((sum, each) => sum + each);
  await visit.tells(() =>
    dlock.using(customer, { lease: 2000, wait: 2000, replicas }, (signal, lock) =>
      visit.with(lock, {}, () => visit.works(lock, ms)),
    ),
  );
}

/** A candidate, which leads until its term ends or it resigns. */
async function stand(dlock) {
  let visit = new Visit({ lock: 'leader', lease: 2000, wait: -1 });
  const resigning = new AbortController();
  const resign = () => resigning.abort();
  stopping.signal.addEventListener('abort', resign);
  const onStarted = async (signal, lock) => {
    const resigns = performance.now() + between(1000, 6000);
    let held = visit.holds('inside', lock, { token: lock.token });
    while (held && performance.now() < resigns && !stopping.signal.aborted) {
      await pause(100, undefined, { signal }).catch(() => {});
      if (!stopping.signal.aborted) held = visit.holds('still', lock);
    }
    if (held) resign();
  };
  const onStopped = (lock) => {
    visit.holds('leaving', lock);
    visit.tell('left');
    visit = new Visit({ lock: 'leader', lease: 2000, wait: -1 });
  };
  try {
    await dlock.elect('leader', { lease: 2000, replicas, signal: resigning.signal, onStarted, onStopped });
    visit.tell('canceled');
    await pause(100);
  } catch (error) {
    visit.tell('error', { type: error.name, message: error.message });
    await pause(200);
  }
  stopping.signal.removeEventListener('abort', resign);
}

/** A job for one of three GPUs, whose number nobody else has. */
async function compute(dlock) {
  const visit = new Visit({ lock: 'gpu', lease: 2000, wait: 2000, limit: 3 });
  await visit.tells(() =>
    dlock.semaphore('gpu', 3).using({ slot: true, lease: 2000, wait: 2000, replicas }, (signal, lock) =>
      visit.with(lock, { slot: lock.slot }, () => visit.works(lock, between(100, 1500))),
    ),
  );
}

/** A job that each machine's scheduler starts, once a period. */
async function report(dlock) {
  const period = 4000;
  await pause(period - (Date.now() % period) + between(0, 30), undefined, { signal: stopping.signal }).catch(() => {});
  if (stopping.signal.aborted) return;
  // The event's `lease` is how long the lock stays: nine tenths of the period.
  const visit = new Visit({ lock: 'report', lease: 3600, wait: 0 });
  let ran = false;
  try {
    ran = await dlock.once('report', period, { lease: 2000, replicas }, (signal, lock) =>
      visit.with(lock, {}, () => visit.works(lock, between(100, 500))),
    );
    visit.tell(ran ? 'left' : 'refused', { kept: true });
  } catch (error) {
    visit.tell('error', { type: error instanceof Abandoned ? 'abandoned' : error.name, message: error.message });
  }
}

const ROLES = { web: [pay, 2], pool: [serve, 2], election: [stand, 1], slots: [compute, 1], cron: [report, 1] };

const client = connect();
client.on('error', () => {}); // each call that fails throws
process.stdin.on('end', () => stopping.abort()).resume();
const stopped = new Promise((resolve) => stopping.signal.addEventListener('abort', resolve));
await Promise.race([stopped, client.connect?.().catch(() => {})]);
const dlock = new DLock(client);
const [task, workers] = ROLES[role];
await Promise.all(
  Array.from({ length: workers }, async () => {
    while (!stopping.signal.aborted) await task(dlock);
  }),
);
if (client.destroy) client.destroy();
else client.disconnect();
