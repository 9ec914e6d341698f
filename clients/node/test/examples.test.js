import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

import { programsOf } from './readme.mjs';

const run = promisify(execFile);
const root = join(import.meta.dirname, '..');
const { DLOCK_TEST_HOST: host = '127.0.0.1', DLOCK_TEST_PORT: port = '6379' } = process.env;

test('the server sells no more than there is', async () => {
  const { stdout } = await run(process.execPath, [join(root, 'examples/server.mjs'), host, port], { timeout: 60_000 });
  assert.equal(stdout, 'sold: 5, sold out: 7, left: 0\n');
});

test('the programs of the README run', async () => {
  const programs = await programsOf(join(root, 'README.md'), ['js']);
  assert(programs.length > 0);
  for (const [number, program] of programs.entries()) {
    const here = program
      .replace('new Redis()', `new Redis({ host: '${host}', port: ${port} })`)
      .replace('createClient()', `createClient({ socket: { host: '${host}', port: ${port} } })`);
    assert.notEqual(here, program, 'it makes a client');
    const file = join(root, `examples/readme-${number}.mjs`);
    await writeFile(file, here);
    await run(process.execPath, [file], { timeout: 60_000 });
  }
});
