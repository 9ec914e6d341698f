// Readers share a lock, a writer excludes all others.
import { createClient } from 'redis';

const address = { host: process.env.DLOCK_TEST_HOST ?? '127.0.0.1', port: Number(process.env.DLOCK_TEST_PORT ?? 6379) };
const redis = await createClient({ socket: address }).connect();
const take = (command, owner) => redis.sendCommand([command, 'recipe:read_write', owner, 'PX', '30000']);
const release = (owner, token) => redis.sendCommand(['DLOCK.RELEASE', 'recipe:read_write', owner, 'TOKEN', String(token)]);

const alice = await take('DLOCK.RLOCK', 'alice');
const bob = await take('DLOCK.RLOCK', 'bob');
if (alice !== null && bob !== null) console.log('alice and bob: reading');
if ((await take('DLOCK.WLOCK', 'carol')) === null) console.log('carol: not granted');

await release('alice', alice);
await release('bob', bob);
const carol = await take('DLOCK.WLOCK', 'carol');
if (carol !== null) console.log('carol: writing');
await release('carol', carol);
redis.destroy();
