// A web server that sells a limited stock: each request for an article waits for the article's lock.
//
//   node server.mjs [HOST [PORT]]
//
// The program starts the server on a free port, sends it requests, prints how they ended, and ends. Servers on several
// machines would share the locks.
import { createServer } from 'node:http';
import { Redis } from 'ioredis';
import { DLock, NoAnswer, NotGranted } from 'redis-dlock';

const [host = '127.0.0.1', port = '6379'] = process.argv.slice(2);
const redis = new Redis({ host, port: Number(port) });
const dlock = new DLock(redis, { lease: 5000, wait: 2000 });

/** Wraps a handler, for example one of Express, to run under a lock. `name` gives the lock's name for a request. */
const locked = (name, handler) => async (request, response) => {
  const gone = new AbortController();
  response.on('close', () => gone.abort(new Error('the client has gone')));
  try {
    const run = (signal, lock) => handler(request, response, signal, lock);
    await dlock.using(name(request), { signal: gone.signal }, run);
  } catch (error) {
    if (gone.signal.aborted) return;
    const busy = error instanceof NotGranted || error instanceof NoAnswer;
    response.writeHead(busy ? 503 : 500, busy ? { 'retry-after': '1' } : {}).end(error.message);
  }
};

const articleOf = (request) => new URL(request.url, 'http://server').searchParams.get('article') ?? 'none';

const buy = locked(
  (request) => `article:${articleOf(request)}`,
  async (request, response, signal, lock) => {
    const key = `example:stock:${articleOf(request)}`;
    const left = Number(await redis.get(key));
    if (left === 0) return response.writeHead(409).end('sold out');
    signal.throwIfAborted(); // the lock was lost: another process may be selling
    await redis.set(key, left - 1);
    return response.writeHead(200, { 'x-fencing-token': String(lock.token) }).end(`sold, ${left - 1} left`);
  },
);

const server = createServer((request, response) => void buy(request, response));
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));

await redis.set('example:stock:hat', 5);
const requests = Array.from({ length: 12 }, () => fetch(`http://127.0.0.1:${server.address().port}/?article=hat`));
const answers = await Promise.all(requests);
const count = (status) => answers.filter((answer) => answer.status === status).length;
console.log(`sold: ${count(200)}, sold out: ${count(409)}, left: ${await redis.get('example:stock:hat')}`);

await redis.del('example:stock:hat');
server.closeAllConnections();
server.close();
redis.disconnect();
