// A lock that lives as long as a connection: the server renews it, and frees it when the connection ends.
import { Redis } from 'ioredis';

const address = { host: process.env.DLOCK_TEST_HOST ?? '127.0.0.1', port: Number(process.env.DLOCK_TEST_PORT ?? 6379) };

// No reconnecting by itself: the lock would be gone, and nobody told.
const alice = new Redis({ ...address, retryStrategy: null });
await alice.call('DLOCK.ACQUIRE', 'recipe:session', 'alice', 'PX', '10000', 'SESSION');
alice.disconnect(); // or the process dies

const bob = new Redis(address);
const token = await bob.call('DLOCK.ACQUIRE', 'recipe:session', 'bob', 'PX', '10000', 'BLOCK', '5000');
if (token !== null) console.log('bob: granted when the connection of alice ended');
await bob.call('DLOCK.RELEASE', 'recipe:session', 'bob', 'TOKEN', token);
bob.disconnect();
