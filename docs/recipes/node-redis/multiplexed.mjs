// A connection for many owners, and a second one for waiting.
import { createClient } from 'redis';

const address = { host: process.env.DLOCK_TEST_HOST ?? '127.0.0.1', port: Number(process.env.DLOCK_TEST_PORT ?? 6379) };
const shared = await createClient({ socket: { ...address, reconnectStrategy: false } }).connect();
const call = (...command) => shared.sendCommand(command);

// The owner names tell the holds on a connection apart. Their session locks all end with it.
const [alice, bob] = await Promise.all([
  call('DLOCK.ACQUIRE', 'recipe:multiplexed:a', 'alice', 'PX', '10000', 'SESSION'),
  call('DLOCK.ACQUIRE', 'recipe:multiplexed:b', 'bob', 'PX', '200'),
]);
if (alice !== null && bob !== null) console.log('alice and bob: granted on one connection');

// BLOCK would delay all commands on the shared connection, so carol waits on her own, without SESSION.
const line = await createClient({ socket: address }).connect();
const carol = await line.sendCommand(['DLOCK.ACQUIRE', 'recipe:multiplexed:b', 'carol', 'PX', '10000', 'BLOCK', '5000']);
const bound = await call('DLOCK.RENEW', 'recipe:multiplexed:b', 'carol', 'TOKEN', String(carol), 'SESSION');
line.destroy();
if (bound === 1) console.log('carol: waited on another, bound to the first');

await call('DLOCK.RELEASE', 'recipe:multiplexed:a', 'alice', 'TOKEN', String(alice));
await call('DLOCK.RELEASE', 'recipe:multiplexed:b', 'carol', 'TOKEN', String(carol));
shared.destroy();
