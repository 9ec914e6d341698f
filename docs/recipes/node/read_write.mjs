// Readers share a lock, a writer excludes all others.
import { Redis } from 'ioredis';

const address = { host: process.env.DLOCK_TEST_HOST ?? '127.0.0.1', port: Number(process.env.DLOCK_TEST_PORT ?? 6379) };
const redis = new Redis(address);
const take = (command, owner) => redis.call(command, 'recipe:read_write', owner, 'PX', '30000');
const release = (owner, token) => redis.call('DLOCK.RELEASE', 'recipe:read_write', owner, 'TOKEN', token);

const alice = await take('DLOCK.RLOCK', 'alice');
const bob = await take('DLOCK.RLOCK', 'bob');
if (alice !== null && bob !== null) console.log('alice and bob: reading');
if ((await take('DLOCK.WLOCK', 'carol')) === null) console.log('carol: not granted');

await release('alice', alice);
await release('bob', bob);
const carol = await take('DLOCK.WLOCK', 'carol');
if (carol !== null) console.log('carol: writing');
await release('carol', carol);
redis.disconnect();
