// A program in TypeScript, with the types of both clients.
import { DLock, LockLost, NoAnswer, NotGranted, TooFewReplicas, type Lock, type LockOptions } from 'redis-dlock';
import { Cluster, Redis } from 'ioredis';
import { createClient, createCluster, createSentinel } from 'redis';

export async function program(): Promise<number> {
  const defaults: LockOptions = { lease: 10_000, wait: 500 };
  const node = { host: '127.0.0.1', port: 6379 };
  const locks = [
    new DLock(new Redis()),
    new DLock(new Cluster([node])),
    new DLock(await createClient().connect(), defaults),
    new DLock(await createCluster({ rootNodes: [{ socket: node }] }).connect()),
    new DLock(await createSentinel({ name: 'main', sentinelRootNodes: [node] }).connect()),
  ];
  for (const dlock of locks) {
    const lock: Lock = await dlock.acquire('name', { signal: AbortSignal.timeout(1000), session: true });
    const released: boolean = await lock.release();
    if (!released) throw lock.signal.reason;
    // @ts-expect-error there is no such mode
    await dlock.acquire('name', { mode: 'shared' });
    // @ts-expect-error several names are not one
    await dlock.acquire(['a', 'b']);
    // @ts-expect-error the options are an object
    await dlock.acquire('name', 5000);
  }
  try {
    const first = await locks[0]!.using('name', async (signal) => signal.aborted);
    return await locks[0]!.using('name', {}, async (signal, lock) => (first || signal.aborted ? 0 : lock.token));
  } catch (error) {
    if (error instanceof TooFewReplicas) return error.acknowledged;
    if (error instanceof LockLost || error instanceof NotGranted) return error.resource.length;
    if (error instanceof NoAnswer) return error.resource.length;
    throw error;
  }
}
