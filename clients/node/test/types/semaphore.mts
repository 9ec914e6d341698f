// A program written for redis-semaphore, in TypeScript.
import { LostLockError, MultiSemaphore, Mutex, RedlockMutex, Semaphore, TimeoutError, type LockOptions } from 'redis-dlock/semaphore';
import { Redis } from 'ioredis';

const client = new Redis();
const options: LockOptions = {
  lockTimeout: 10_000,
  onLockLost(error) {
    if (!(error instanceof LostLockError) || this.isAcquired) throw error;
  },
};

export async function program(): Promise<number> {
  const locks = [new Mutex(client, 'a', options), new Semaphore(client, 'b', 5), new MultiSemaphore(client, 'c', 5, 2)];
  try {
    for (const lock of [...locks, new RedlockMutex([client], 'd')]) await lock.acquire(AbortSignal.timeout(1000));
    // @ts-expect-error there is a limit
    new Semaphore(client, 'e');
    return locks[0]!.token ?? 0;
  } catch (error) {
    if (error instanceof TimeoutError) return 0;
    throw error;
  } finally {
    for (const lock of locks) await lock.release();
  }
}
