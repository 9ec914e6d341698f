/** Connections of this package have the database, the login and the name that the client has now. */

import assert from 'node:assert/strict';

import { DLock } from 'redis-dlock';

import { PATIENT, lookAt, openSession, refused, sleep, test, until, withEachClient } from './fixture.js';
import { start } from './servers.js';

/** How many wait on a server, in whichever database. */
async function waitersIn(server) {
  return Number(/dlock_waiters:(\d+)/.exec(await server.run('INFO', 'dlock'))?.[1] ?? 0);
}

withEachClient(({ kind, open }) => {
  /** A server, and a client of it that has the options. */
  async function opened(options) {
    const server = await start();
    return { server, client: await open({ at: server.port, ...options }) };
  }

  /** The fields that CLIENT LIST has of the connection that waits. */
  async function waiting(server, acquiring) {
    acquiring.catch(() => {});
    await Promise.race([acquiring, until('it waits', async () => (await waitersIn(server)) === 1)]);
    const lines = (await server.run('CLIENT', 'LIST')).split('\n');
    const line = lines.find((each) => / flags=\w*b\w* /.test(each) && each.includes(' cmd=dlock.acquire '));
    return Object.fromEntries(line.split(' ').map((field) => field.split(/=(.*)/).slice(0, 2)));
  }

  const auth = (client, user, password) =>
    kind === 'ioredis' ? client.auth(user, password) : client.auth({ username: user, password });
  const call = (client, ...words) => (client.call ? client.call(...words) : client.sendCommand(words));

  const SELECTS = {
    'before the package sees it': async (client, made) => {
      await client.select(6);
      return made();
    },
    afterwards: async (client, made) => {
      const dlock = made();
      await (await dlock.acquire('first')).release();
      await client.select(6);
      return dlock;
    },
    'in the same turn': async (client, made) => {
      const dlock = made();
      client.select(6).catch(() => {});
      return dlock;
    },
    'by a plain command': async (client, made) => {
      const dlock = made();
      await call(client, 'SELECT', '6');
      return dlock;
    },
    'over another one': async (client, made) => {
      await client.select(3);
      const dlock = made();
      await (await dlock.acquire('first')).release();
      await client.select(6);
      return dlock;
    },
  };

  for (const [how, select] of Object.entries(SELECTS)) {
    test(`a wait is in the database that the client has selected ${how}`, async () => {
      const { server, client } = await opened();
      const other = await open({ at: server.port, ...(kind === 'ioredis' ? { db: 6 } : { database: 6 }) });
      const dlock = await select(client, () => new DLock(client, PATIENT));
      const session = await openSession(client, { timeout: 10_000 });
      const held = await dlock.acquire('job', { lease: 300_000 });
      const WAYS = { plain: {}, connection: { session: true }, named: { session } };
      for (const way of Object.values(WAYS)) await refused(() => dlock.acquire('job', { wait: 1000, ...way }));
      await refused(() => new DLock(other).acquire('job', { wait: 0 }));
      let before = held;
      for (const way of Object.values(WAYS)) {
        const next = dlock.acquire('job', { wait: 120_000, ...way });
        next.catch(() => {});
        await until('it waits', async () => (await waitersIn(server)) === 1);
        await before.release();
        before = await next;
      }
      await before.release();
      await session.close();
      assert.equal(await new DLock(other).holder('job'), null);
      assert.doesNotMatch(await server.run('INFO', 'keyspace'), /db[0-57]:/, 'nothing is in another database');
      await server.stop();
    });
  }

  const RESETS = { 'a plain RESET': (client) => call(client, 'RESET'), 'reset()': (client) => client.reset() };
  for (const [how, reset] of Object.entries(RESETS)) {
    test(`after ${how}, waits are in database 0, as is the client`, async () => {
      const { server, client } = await opened();
      const dlock = new DLock(client, PATIENT);
      await call(client, 'SELECT', '6');
      await (await dlock.acquire('job')).release();
      await reset(client);
      const lock = await dlock.acquire('job', { lease: 300_000 });
      assert.match(String(await call(client, 'CLIENT', 'INFO')), / db=0 /);
      await refused(() => dlock.acquire('job', { wait: 1000 }));
      assert.equal(await lock.release(), true);
      assert.doesNotMatch(await server.run('INFO', 'keyspace'), /db\d/);
      await server.stop();
    });
  }

  test('a refused SELECT hides no other that was sent with it', async () => {
    for (const [databases, selected] of [[['99', '7'], 7], [['7', '99'], 7], [['99', '98'], 0]]) {
      const { server, client } = await opened();
      const dlock = new DLock(client, PATIENT);
      await Promise.allSettled(databases.map((database) => call(client, 'SELECT', database)));
      const other = await open({ at: server.port, ...(kind === 'ioredis' ? { db: selected } : { database: selected }) });
      const held = await new DLock(other).acquire('taken', { lease: 300_000 });
      const lock = await dlock.acquire('job', { lease: 300_000 });
      await refused(() => dlock.acquire('taken', { wait: 1000 })); // waits on a connection of the package's own
      assert.equal(await lock.release(), true, String(databases));
      assert.equal(await held.release(), true, String(databases));
      assert.doesNotMatch(await server.run('INFO', 'keyspace'), /db\d/);
      await server.stop();
    }
  });

  if (kind === 'ioredis') {
    test('a lock is released in its database, even if the server tells the database late', async () => {
      const { server, client } = await opened();
      const send = client.call.bind(client);
      let isLate = true;
      client.call = (...words) => {
        const reply = send(...words);
        if (!isLate || words.join(' ') !== 'CLIENT INFO') return reply;
        return reply.then((text) => sleep(1000).then(() => text)); // longer than the package waits for it
      };
      const dlock = new DLock(client, PATIENT);
      await client.call('SELECT', '6');
      const lock = await dlock.acquire('job', { lease: 300_000 });
      await sleep(1500);
      isLate = false;
      await (await dlock.acquire('other')).release();
      assert.equal(await lock.release(), true);
      assert.doesNotMatch(await server.run('INFO', 'keyspace'), /db\d/);
      await server.stop();
    });
  }

  test('a hold stays in its database, whatever the client selects later', async () => {
    const { server, client } = await opened();
    const dlock = new DLock(client, PATIENT);
    await client.select(6);
    for (const way of [{}, { session: true }]) {
      const lock = await dlock.acquire('job', { lease: 20_000, ...way });
      await client.select(2);
      await lock.extend(30_000);
      assert(!lock.signal.aborted);
      assert.equal(await lock.release(), true);
      await client.select(6);
      assert.equal(await dlock.holder('job'), null);
    }
    await server.stop();
  });

  test('a session keeps a hold in its database, whatever the client selects later', async () => {
    const { server, client } = await opened();
    await client.select(6);
    const session = await openSession(client, { timeout: 5000 });
    const dlock = new DLock(client, { ...PATIENT, session });
    const [lock, other] = [await dlock.acquire('job'), await dlock.acquire('other')];
    await client.select(2);
    const here = await dlock.acquire('job');
    await sleep(16_500); // longer than the first lease: from then on, a hold counts only if its cap is known
    for (const each of [lock, other, here]) assert(!each.signal.aborted && each.remaining > 0, String(each.signal.reason));
    await server.run('CONFIG', 'SET', 'min-replicas-to-write', '1');
    await assert.rejects(other.release(), /NOREPLICAS/);
    await server.run('CONFIG', 'SET', 'min-replicas-to-write', '0');
    assert.equal(await lock.release(), true);
    await here.release();
    await until('the session releases it', async () => !(await server.run('INFO', 'keyspace')).includes('db'));
    await session.close();
    await server.stop();
  });

  test('a wait has the user and the name that the client has', async () => {
    const { server, client } = await opened();
    await server.run('ACL', 'SETUSER', 'app', 'reset', 'on', '>one', '~*', '+@all');
    const dlock = new DLock(client, PATIENT);
    await server.run('DLOCK.ACQUIRE', 'job', 'other', 'PX', '60000');
    await auth(client, 'app', 'one');
    await call(client, 'CLIENT', 'SETNAME', 'payments');
    for (const session of [false, true]) {
      const lock = dlock.acquire('job', { session });
      const line = await waiting(server, lock);
      assert.deepEqual([line.user, line.name], ['app', 'payments']);
      await server.run('DLOCK.RELEASE', 'job', 'other');
      await (await lock).release();
      await server.run('DLOCK.ACQUIRE', 'job', 'other', 'PX', '60000');
    }
    // The password is rotated.
    await server.run('ACL', 'SETUSER', 'app', 'resetpass', '>two');
    await auth(client, 'app', 'two');
    const lock = dlock.acquire('job');
    assert.equal((await waiting(server, lock)).user, 'app');
    await server.run('DLOCK.RELEASE', 'job', 'other');
    await (await lock).release();
    await server.stop();
  });

  test('no wait is that of another user, even if the login is not known', async () => {
    const { server, client } = await opened();
    await server.run('ACL', 'SETUSER', 'app', 'reset', 'on', '>one', '~*', '+@all');
    await auth(client, 'app', 'one');
    const dlock = new DLock(client, PATIENT);
    await server.run('DLOCK.ACQUIRE', 'job', 'other', 'PX', '60000');
    const acquiring = dlock.acquire('job', { wait: 20_000 });
    acquiring.catch(() => {});
    await sleep(500);
    const { waiters } = await lookAt(server.run, 'job');
    assert.equal(waiters, 0, 'nobody is in line as another user');
    await refused(() => dlock.acquire('job', { wait: 1000 }));
    await server.run('DLOCK.RELEASE', 'job', 'other');
    const lock = await acquiring;
    assert.equal((await lookAt(server.run, 'job')).token, lock.token);
    assert.equal(await lock.release(), true);
    // A connection that binds the lock cannot be made.
    await assert.rejects(dlock.acquire('job', { session: true }), /would have the user default/);
    await server.stop();
  });

  test('the options of a client count, also after they were changed', async () => {
    const server = await start();
    await server.run('ACL', 'SETUSER', 'app', 'reset', 'on', '>one', '~*', '+@all');
    const login = { username: 'app', password: 'one' };
    const client = await open({ at: server.port, ...login, ...(kind === 'ioredis' ? { db: 4 } : { database: 4 }) });
    const dlock = new DLock(client, PATIENT);
    const held = await dlock.acquire('job');
    await server.run('ACL', 'SETUSER', 'app', 'resetpass', '>two');
    client.options.password = 'two';
    const lock = dlock.acquire('job', { wait: 20_000 });
    lock.catch(() => {});
    await until('it waits', async () => (await waitersIn(server)) === 1);
    await held.release();
    await (await lock).release();
    await server.stop();
  });

  test('the state is that of the connection that the client has now', async () => {
    const { server, client } = await opened();
    await server.run('ACL', 'SETUSER', 'app', 'reset', 'on', '>one', '~*', '+@all');
    const dlock = new DLock(client, PATIENT);
    await client.select(5);
    await auth(client, 'app', 'one');
    await (await dlock.acquire('job')).release();
    await server.run('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    const present = async () => {
      try {
        return String(await call(client, 'CLIENT', 'INFO'));
      } catch {
        return '';
      }
    };
    await until('it has connected again', async () => (await present()).includes('user=default'));
    assert.match(await present(), /db=5 /);
    const held = await dlock.acquire('job');
    const acquiring = dlock.acquire('job', { wait: 20_000 });
    acquiring.catch(() => {});
    await until('it waits', async () => (await waitersIn(server)) === 1);
    assert.match(await server.run('CLIENT', 'LIST'), /db=5 .*cmd=dlock.acquire user=default/);
    await held.release();
    await (await acquiring).release();
    await server.stop();
  });

  test('after a reconnect, waits are in the database of the new connection, even if it is another one', async () => {
    const { server, client } = await opened();
    const dlock = new DLock(client, PATIENT);
    await call(client, 'SELECT', '7'); // which node-redis does not know of
    await (await dlock.acquire('job')).release();
    const id = /id=(\d+)/.exec(String(await call(client, 'CLIENT', 'INFO')))[1];
    await server.run('CLIENT', 'KILL', 'ID', id);
    await until('it has connected again', () => call(client, 'PING').then(() => true, () => false));
    const lock = await dlock.acquire('job', { lease: 20_000 });
    await refused(() => dlock.acquire('job', { wait: 1000 }));
    await lock.extend();
    assert.equal(await lock.release(), true);
    await server.stop();
  });
}, { concurrency: 4 });
