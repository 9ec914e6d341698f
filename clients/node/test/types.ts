// What a program in TypeScript writes, with the types of both clients.
import { DLock, LockLost, NotGranted, type Lock, type LockOptions } from 'dlock';
import { Redis } from 'ioredis';
import { createClient } from 'redis';

export async function program(): Promise<number> {
  const defaults: LockOptions = { lease: 10_000, wait: 500 };
  const locks = [new DLock(new Redis()), new DLock(await createClient().connect(), defaults)];
  for (const dlock of locks) {
    const lock: Lock = await dlock.acquire('name', { signal: AbortSignal.timeout(1000), session: true });
    const released: boolean = await lock.release();
    if (!released) throw lock.signal.reason;
    // @ts-expect-error there is no such mode
    await dlock.acquire('name', { mode: 'shared' });
  }
  try {
    return await locks[0]!.using('name', {}, async (signal, lock) => (signal.aborted ? 0 : lock.token));
  } catch (error) {
    if (error instanceof LockLost || error instanceof NotGranted) return error.resource.length;
    throw error;
  }
}
