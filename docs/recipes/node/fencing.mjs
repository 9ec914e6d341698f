// A write that a database rejects if a later owner of the lock has written.
import { Redis } from 'ioredis';
import initSqlite from 'sql.js';

const address = { host: process.env.DLOCK_TEST_HOST ?? '127.0.0.1', port: Number(process.env.DLOCK_TEST_PORT ?? 6379) };
const redis = new Redis(address);
const { Database } = await initSqlite();
const database = new Database();
database.run('CREATE TABLE report (id INTEGER PRIMARY KEY, body TEXT, fence INTEGER NOT NULL)');
database.run("INSERT INTO report VALUES (1, '', 0)");

function write(body, token) {
  database.run('UPDATE report SET body = ?1, fence = ?2 WHERE id = 1 AND fence <= ?2', [body, token]);
  return database.getRowsModified() === 1;
}

const alice = await redis.call('DLOCK.ACQUIRE', 'recipe:fencing', 'alice', 'PX', '30000');
await redis.del('recipe:fencing'); // her lease ended while she was paused
const bob = await redis.call('DLOCK.ACQUIRE', 'recipe:fencing', 'bob', 'PX', '30000');

if (write('by bob', bob)) console.log('bob: written');
if (!write('by alice', alice)) console.log('alice: refused, her token is the older one');
await redis.call('DLOCK.RELEASE', 'recipe:fencing', 'bob', 'TOKEN', bob);
redis.disconnect();
