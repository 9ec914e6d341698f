// A transaction that takes effect only if the lock is still held: WATCH the lock, check it, then MULTI.
import { WatchError, createClient } from 'redis';

const address = { host: process.env.DLOCK_TEST_HOST ?? '127.0.0.1', port: Number(process.env.DLOCK_TEST_PORT ?? 6379) };
const redis = await createClient({ socket: address }).connect(); // of its own: WATCH is for all that is sent on a connection
const other = await createClient({ socket: address }).connect();

async function write(token, value, meanwhile) {
  await redis.watch('recipe:watch_multi');
  if ((await redis.sendCommand(['DLOCK.CHECK', 'recipe:watch_multi', String(token)])) === null) {
    await redis.unwatch();
    return false;
  }
  await meanwhile();
  try {
    await redis.multi().set('recipe:value', value).exec();
    return true;
  } catch (error) {
    if (error instanceof WatchError) return false;
    throw error;
  }
}

const token = await redis.sendCommand(['DLOCK.ACQUIRE', 'recipe:watch_multi', 'alice', 'PX', '30000']);
if (await write(token, 'one', async () => {})) console.log('alice: written');
if (!(await write(token, 'two', () => other.del('recipe:watch_multi')))) {
  console.log('alice: not written, the lock was lost');
}
other.destroy();
redis.destroy();
