// A program written for redlock 5, in TypeScript.
import Redlock, { ExecutionError, ResourceLockedError, type Lock, type RedlockAbortSignal, type Settings } from 'redis-dlock/redlock';
import { Redis } from 'ioredis';

const settings: Partial<Settings> = { retryCount: 3 };
const redlock: Redlock = new Redlock([new Redis()], settings);
redlock.on('error', (error) => error instanceof ResourceLockedError);

export async function program(): Promise<number> {
  let lock: Lock = await redlock.acquire(['a'], 5000);
  lock = await lock.extend(5000);
  const { attempts } = await lock.release();
  const votes = (await attempts[0])?.votesFor.size ?? 0;
  return redlock.using(['a', 'b'], 5000, { retryCount: 0 }, async (signal: RedlockAbortSignal) => {
    if (signal.aborted) throw signal.error;
    return votes + lock.expiration;
  });
}
