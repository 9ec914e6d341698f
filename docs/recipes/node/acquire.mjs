// Take a lock, or hear at once that somebody else has it.
import { Redis } from 'ioredis';

const address = { host: process.env.DLOCK_TEST_HOST ?? '127.0.0.1', port: Number(process.env.DLOCK_TEST_PORT ?? 6379) };
const redis = new Redis(address);

const token = await redis.call('DLOCK.ACQUIRE', 'recipe:acquire', 'alice', 'PX', '30000');
if (token !== null) console.log('alice: granted');
const other = await redis.call('DLOCK.ACQUIRE', 'recipe:acquire', 'bob', 'PX', '30000');
if (other === null) console.log('bob: not granted');

// With its token a release that comes late cannot touch the next hold.
const released = await redis.call('DLOCK.RELEASE', 'recipe:acquire', 'alice', 'TOKEN', token);
if (released === 1) console.log('alice: released');
redis.disconnect();
