/** The decorators in an application of NestJS, over HTTP and in its scheduler. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { NestFactory } from '@nestjs/core';
import { Test } from '@nestjs/testing';
import { DLock, LockLost, NotGranted } from 'redis-dlock';
import { Locked, Once } from 'redis-dlock/nest';

import { AppModule, MoreStock, Plain, Stock, clients, connected, moduleOf } from './app.mjs';
import { readme } from './programs.mjs';
import { until } from './until.mjs';

const apps = [];
const urls = [];
/** The cron jobs run from here on, until the applications close. */
const began = Date.now();

before(async () => {
  for (let machine = 0; machine < 2; machine += 1) {
    const app = await NestFactory.create(AppModule, { logger: ['error'], abortOnError: false });
    apps.push(app);
    await app.listen(0, '127.0.0.1');
    urls.push(await app.getUrl());
  }
});

after(async () => {
  await Promise.all(apps.map((app) => app.close()));
  clients.forEach((client) => client.disconnect());
});

const post = (at, path, body) =>
  fetch(`${urls[at % 2]}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });

test('requests to two applications change one article one at a time', async () => {
  await clients[0].set('left:7', 20);
  const answers = await Promise.all(Array.from({ length: 20 }, (_, at) => post(at, '/stock/7', { by: 1 })));
  const tokens = await Promise.all(answers.map(async (answer) => (await answer.json()).token));
  assert.equal(new Set(tokens).size, 20);
  assert.equal(await clients[0].get('left:7'), '0');
});

test('Locked may stand above or below the decorator of a route, and a filter answers NotGranted', async () => {
  for (const path of ['/stock/above', '/stock/below']) {
    const answer = await (await fetch(urls[0] + path)).json();
    assert(answer.token > 0, path);
    const lock = await new DLock(clients[0]).acquire('route');
    const busy = await fetch(urls[1] + path);
    assert.deepEqual([busy.status, await busy.json()], [409, { busy: 'route' }]);
    await lock.release();
  }
  const { token, asked } = await (await fetch(`${urls[0]}/stock/above`)).json();
  assert(asked > token, 'a provider for each request, in the lock of the controller');
});

test('a cron job of two applications runs once a period', async () => {
  const stocks = apps.map((app) => app.get(Stock));
  await until('it has run twice', () => stocks.reduce((sum, { runs }) => sum + runs.length, 0) >= 2);
  const runs = stocks.flatMap((stock) => stock.runs);
  assert(runs.length <= 2 + (Date.now() - began) / 1800);
  assert.equal(new Set(runs).size, runs.length);
});

test('a call is refused while another runs, and an inherited method runs under the lock', async () => {
  const [first, second] = apps.map((app) => app.get(Stock));
  await first.alone(async () => {
    await assert.rejects(second.alone(async () => assert.fail('it ran')), NotGranted);
  });
  assert.equal(await apps[0].get(MoreStock).alone(async () => {}), 'more alone');
  await assert.rejects(first.alone(() => Promise.reject(new Error('of the body'))), /of the body/);
  await assert.rejects(first.alone(async () => void (await clients[0].del('alone'))), LockLost);
  assert(first.dlock instanceof DLock);
});

test('the module is asked for where it is not global', async () => {
  const root = moduleOf(connected(), false);
  await assert.rejects(Test.createTestingModule({ imports: [root] }).compile(), /can't resolve dependencies/);
  const found = await Test.createTestingModule({ imports: [moduleOf(connected(), true)] }).compile();
  assert((await found.get(Plain).run()) > 0);
  await found.close();
});

test('without the module of the server, the method rejects, and does not run', async () => {
  const bare = connected(Number(process.env.DLOCK_TEST_BARE_PORT));
  const app = await Test.createTestingModule({ imports: [moduleOf(bare, true)] }).compile();
  await assert.rejects(app.get(Plain).run(), /is the dlock module loaded/);
  await app.close();
});

test('what cannot work is refused', async () => {
  await assert.rejects(new Plain().run(), /an instance that Nest has made/);
  for (const period of ['1x', '', '1m2h', 'd', 10]) assert.throws(() => Once(period), (error) => /period/.test(error.message));
  for (const period of ['1d', '12h', '1h30m', '1500ms', 86_400_000]) Once(period);
  assert.throws(() => Locked(''), TypeError);
  assert.throws(() => Locked('name', { waits: 1 }), /unknown option/);
});

test('the program of the README runs', async () => {
  const { stdout } = await readme('nest', 'DlockModule');
  assert.match(stdout, /the invoice of ann token \d+\nthe report of today\n$/);
});
