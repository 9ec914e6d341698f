// Acquire a lock, or learn at once that another owner holds it.
import { createClient } from 'redis';

const address = { host: process.env.DLOCK_TEST_HOST ?? '127.0.0.1', port: Number(process.env.DLOCK_TEST_PORT ?? 6379) };
const redis = await createClient({ socket: address }).connect();

const token = await redis.sendCommand(['DLOCK.ACQUIRE', 'recipe:acquire', 'alice', 'PX', '30000']);
if (token !== null) console.log('alice: granted');
const other = await redis.sendCommand(['DLOCK.ACQUIRE', 'recipe:acquire', 'bob', 'PX', '30000']);
if (other === null) console.log('bob: not granted');

// The release carries the token, so a late release cannot affect the next hold.
const released = await redis.sendCommand(['DLOCK.RELEASE', 'recipe:acquire', 'alice', 'TOKEN', String(token)]);
if (released === 1) console.log('alice: released');
redis.destroy();
