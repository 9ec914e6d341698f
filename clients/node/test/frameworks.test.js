/** croner's jobs that run once on several machines, and BullMQ's jobs that run one at a time for each customer. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';

import { Queue, Worker } from 'bullmq';
import { Cron } from 'croner';
import { Redis } from 'ioredis';
import { DLock } from 'redis-dlock';

import { PATIENT, sleep, until } from './fixture.js';
import { start } from './servers.js';

function dlockAt({ port }) {
  const client = new Redis({ host: '127.0.0.1', port });
  client.on('error', () => {});
  after(() => client.disconnect());
  return new DLock(client, PATIENT);
}

test('croner: of three machines, one runs the job at each time', async () => {
  const server = await start();
  const runs = [];
  const errors = [];
  const jobs = [0, 1, 2].map((machine) => {
    const dlock = dlockAt(server);
    return new Cron('*/3 * * * * *', { catch: (error) => errors.push(error) }, async (self) => {
      const due = Math.round(self.currentRun().getTime() / 3000);
      await sleep(machine * 100); // the clocks of the machines differ
      await dlock.once('report', 3000, async () => void runs.push(due));
    });
  });
  await until('the job has run at three times', async () => new Set(runs).size === 3);
  jobs.forEach((job) => job.stop());
  await sleep(500); // a second run at the last time would come by now
  assert.equal(new Set(runs).size, runs.length, `once at each time, not ${runs}`);
  assert.deepEqual(errors, []);
  await server.stop();
});

test('croner: without the module the job fails, and says so', async () => {
  const server = await start({ withModule: false });
  const errors = [];
  const dlock = dlockAt(server);
  const job = new Cron('* * * * * *', { catch: (error) => errors.push(error) }, async () => {
    await dlock.once('report', 1000, () => assert.fail('the job ran'));
  });
  await until('the job has failed', async () => errors.length > 0);
  job.stop();
  assert.match(errors[0].message, /is the dlock module loaded/);
  await server.stop();
});

test('BullMQ: the jobs of a customer run one at a time, those of others beside them', async () => {
  const server = await start();
  const connection = { host: '127.0.0.1', port: server.port };
  const running = new Map();
  let [most, mostOfOne] = [0, 0];
  const tokens = [];
  const workers = [0, 1].map(() => {
    const dlock = dlockAt(server);
    const run = async ({ data: { customer } }) => {
      await dlock.using(`customer:${customer}`, { wait: 60_000 }, async (signal, lock) => {
        running.set(customer, (running.get(customer) ?? 0) + 1);
        most = Math.max(most, [...running.values()].reduce((sum, each) => sum + each));
        mostOfOne = Math.max(mostOfOne, running.get(customer));
        tokens.push(lock.token);
        await sleep(100);
        running.set(customer, running.get(customer) - 1);
      });
    };
    return new Worker('invoices', run, { connection, concurrency: 4 });
  });
  const queue = new Queue('invoices', { connection });
  await queue.addBulk(Array.from({ length: 16 }, (_, at) => ({ name: 'invoice', data: { customer: at % 2 } })));
  await until('all 16 jobs are done', async () => (await queue.getCompletedCount()) === 16);
  assert.deepEqual([mostOfOne, most], [1, 2]);
  assert.equal(new Set(tokens).size, 16);
  await Promise.all([...workers, queue].map((each) => each.close()));
  await server.stop();
});

test('BullMQ: without the module the job fails, and says so', async () => {
  const server = await start({ withModule: false });
  const connection = { host: '127.0.0.1', port: server.port };
  const dlock = dlockAt(server);
  const worker = new Worker('invoices', () => dlock.using('job', () => assert.fail('the job ran')), { connection });
  const queue = new Queue('invoices', { connection });
  const { id } = await queue.add('invoice', {});
  await until('the job has failed', async () => (await queue.getFailedCount()) === 1);
  assert.match((await queue.getJob(id)).failedReason, /is the dlock module loaded/);
  await Promise.all([worker, queue].map((each) => each.close()));
  await server.stop();
});
