// A lock that ends with its connection: the server renews it, and releases it when the connection closes.
import { Redis } from 'ioredis';

const address = { host: process.env.DLOCK_TEST_HOST ?? '127.0.0.1', port: Number(process.env.DLOCK_TEST_PORT ?? 6379) };

// No automatic reconnection: the lock would be gone without notice.
const alice = new Redis({ ...address, retryStrategy: null });
await alice.call('DLOCK.ACQUIRE', 'recipe:session', 'alice', 'PX', '10000', 'SESSION');
alice.disconnect(); // or the process dies

const bob = new Redis(address);
const token = await bob.call('DLOCK.ACQUIRE', 'recipe:session', 'bob', 'PX', '10000', 'BLOCK', '5000');
if (token !== null) console.log('bob: granted when the connection of alice ended');
await bob.call('DLOCK.RELEASE', 'recipe:session', 'bob', 'TOKEN', token);
bob.disconnect();
