// Renew a lease while the work goes on.
import { createClient } from 'redis';

const address = { host: process.env.DLOCK_TEST_HOST ?? '127.0.0.1', port: Number(process.env.DLOCK_TEST_PORT ?? 6379) };
const redis = await createClient({ socket: address }).connect();

const token = await redis.sendCommand(['DLOCK.ACQUIRE', 'recipe:renew', 'alice', 'PX', '10000']);
const renew = () => redis.sendCommand(['DLOCK.RENEW', 'recipe:renew', 'alice', 'TOKEN', String(token)]);

// Send this whenever about a third of the lease has passed. Without a lease, it keeps the one it has.
if ((await renew()) === 1) console.log('renewed');

await redis.sendCommand(['DLOCK.RELEASE', 'recipe:renew', 'alice', 'TOKEN', String(token)]);
// The lock is lost: stop the work. A renewal never acquires a lock.
if ((await renew()) === null) console.log('nothing to renew');
redis.destroy();
