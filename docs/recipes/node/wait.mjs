// Wait in the queue: one command on a connection of its own, because it delays all later commands there.
import { Redis } from 'ioredis';

const address = { host: process.env.DLOCK_TEST_HOST ?? '127.0.0.1', port: Number(process.env.DLOCK_TEST_PORT ?? 6379) };
const redis = new Redis(address);
await redis.call('DLOCK.ACQUIRE', 'recipe:wait', 'alice', 'PX', '200'); // her lease ends in a moment

// The connection has no timeout, even if the program's other ones do.
const line = new Redis({ ...address, commandTimeout: undefined, socketTimeout: undefined, maxRetriesPerRequest: null });
const token = await line.call('DLOCK.ACQUIRE', 'recipe:wait', 'bob', 'PX', '30000', 'BLOCK', '60000', 'REQUEST', '1');
line.disconnect();

if (token !== null) { // null: the 60 seconds are over
  console.log('bob: granted after waiting');
  await redis.call('DLOCK.RELEASE', 'recipe:wait', 'bob', 'TOKEN', token);
}
redis.disconnect();
