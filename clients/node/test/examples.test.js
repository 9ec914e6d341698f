import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

import { until } from './fixture.js';
import { programsOf } from './readme.mjs';
import { start } from './servers.js';

const run = promisify(execFile);
const root = join(import.meta.dirname, '..');
const { DLOCK_TEST_HOST: host = '127.0.0.1', DLOCK_TEST_PORT: port = '6379' } = process.env;

/** Writes a program of the README to a file, with this server's address in it. Returns the path of the file. */
async function written(program, name, host, port) {
  const here = program
    .replace('new Redis()', `new Redis({ host: '${host}', port: ${port} })`)
    .replace('createClient()', `createClient({ socket: { host: '${host}', port: ${port} } })`)
    .replace("{ host: '127.0.0.1', port: 6379 }", `{ host: '${host}', port: ${port} }`);
  assert.notEqual(here, program, `the program ${name} has no address to replace`);
  const file = join(root, `examples/readme-${name}.mjs`);
  await writeFile(file, here);
  return file;
}

test('the example of a web server sells its stock and no more', async () => {
  const { stdout } = await run(process.execPath, [join(root, 'examples/server.mjs'), host, port], { timeout: 60_000 });
  // Twelve requests for five hats. On a busy machine, some may wait too long for the lock and get 503.
  const [sold, soldOut, left] = /^sold: (\d+), sold out: (\d+), left: (\d+)\n$/.exec(stdout).slice(1).map(Number);
  assert(sold > 0 && sold + left === 5 && sold + soldOut <= 12 && (left === 0 || soldOut === 0), stdout);
});

test('the programs of the README run', async () => {
  const programs = await programsOf(join(root, 'README.md'), ['js']);
  assert(programs.length > 0);
  for (const [number, program] of programs.entries()) {
    await run(process.execPath, [await written(program, number, host, port)], { timeout: 60_000 });
  }
});

/** The tests of the programs that run until a signal ends them. Each key is a word that only that program contains. */
const LASTING = {
  async 'dlock.watch'({ server, said, stop }) {
    await until('the program says that nobody leads', () => said().includes('no leader'));
    await server.run('DLOCK.ACQUIRE', 'leader', 'bob', 'PX', '60000');
    await until('the program says that bob leads', () => said().includes('bob leads since'));
    assert.deepEqual(await stop(), [0, null]);
  },
  async 'dlock.elect'({ server, said, stop }) {
    const terms = () => new Set(said().match(/(?<=working with token )\d+/g));
    await until('the program leads', () => terms().size === 1);
    await server.run('DEL', 'leader');
    await until('the term has ended', () => said().includes('no longer the leader'));
    await until('the program leads again', () => terms().size === 2);
    assert.deepEqual(await stop(), [0, null]);
    assert.equal(await server.run('EXISTS', 'leader'), 0);
  },
  async croner({ server, stop }) {
    // The first client is the test's own. Redis before 7.2 does not tell the libraries of clients, so they are counted.
    const clients = async () => (await server.run('CLIENT', 'LIST')).match(/^id=/gm).length;
    await until('the program is connected', async () => (await clients()) > 1);
    assert.deepEqual(await stop(), [null, 'SIGTERM']);
  },
  async bullmq({ server, stop }) {
    await until('the program waits for jobs', async () => /cmd=bzpopmin/.test(await server.run('CLIENT', 'LIST')));
    assert.deepEqual(await stop(), [null, 'SIGTERM']);
  },
};

test('the programs of the README that do not end by themselves run until a signal ends them', async () => {
  const programs = await programsOf(join(root, 'README.md'), ['ts']);
  assert.equal(programs.length, Object.keys(LASTING).length);
  for (const [word, play] of Object.entries(LASTING)) {
    const server = await start();
    const program = programs.find((each) => each.includes(word));
    const child = spawn(process.execPath, [await written(program, word, '127.0.0.1', server.port)]);
    let [said, complained] = ['', ''];
    child.stdout.on('data', (data) => (said += data));
    child.stderr.on('data', (data) => (complained += data));
    const ended = once(child, 'exit');
    const stop = () => {
      child.kill('SIGTERM');
      return ended;
    };
    try {
      await play({ server, said: () => said, stop });
      assert.equal(complained, '', word);
    } catch (error) {
      error.message += ` (${word}: ${said}${complained})`;
      throw error;
    } finally {
      child.kill('SIGKILL');
      await server.stop();
    }
  }
});
