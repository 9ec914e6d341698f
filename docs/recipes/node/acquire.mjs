// Acquire a lock, or learn at once that another owner holds it.
import { Redis } from 'ioredis';

const address = { host: process.env.DLOCK_TEST_HOST ?? '127.0.0.1', port: Number(process.env.DLOCK_TEST_PORT ?? 6379) };
const redis = new Redis(address);

const token = await redis.call('DLOCK.ACQUIRE', 'recipe:acquire', 'alice', 'PX', '30000');
if (token !== null) console.log('alice: granted');
const other = await redis.call('DLOCK.ACQUIRE', 'recipe:acquire', 'bob', 'PX', '30000');
if (other === null) console.log('bob: not granted');

// The release carries the token, so a late release cannot affect the next hold.
const released = await redis.call('DLOCK.RELEASE', 'recipe:acquire', 'alice', 'TOKEN', token);
if (released === 1) console.log('alice: released');
redis.disconnect();
