// A lock that ends with its connection: the server renews it, and releases it when the connection closes.
import { createClient } from 'redis';

const address = { host: process.env.DLOCK_TEST_HOST ?? '127.0.0.1', port: Number(process.env.DLOCK_TEST_PORT ?? 6379) };

// No automatic reconnection: the lock would be gone without notice.
const alice = await createClient({ socket: { ...address, reconnectStrategy: false } }).connect();
await alice.sendCommand(['DLOCK.ACQUIRE', 'recipe:session', 'alice', 'PX', '10000', 'SESSION']);
alice.destroy(); // or the process dies

const bob = await createClient({ socket: address }).connect();
const token = await bob.sendCommand(['DLOCK.ACQUIRE', 'recipe:session', 'bob', 'PX', '10000', 'BLOCK', '5000']);
if (token !== null) console.log('bob: granted when the connection of alice ended');
await bob.sendCommand(['DLOCK.RELEASE', 'recipe:session', 'bob', 'TOKEN', String(token)]);
bob.destroy();
