import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import { start } from './servers.js';

const root = join(import.meta.dirname, '..');
const FILES = ['arguments', 'locks', 'observe', 'several', 'waiting'].map((name) => join(root, `test/${name}.test.js`));

/**
 * Returns the permissions that docs/permissions.md names: those for the commands of locks, and those for the other
 * commands that this kind of client sends. tests/clients/node.sh copies the page into the parent directory.
 */
async function permissionsOf(kind) {
  const page = await readFile(join(root, 'permissions.md'), 'utf8');
  const commands = [...page.matchAll(/^127\.0\.0\.1:6379> ACL SETUSER worker (.*)$/gm)].map(([, rules]) => rules);
  const row = page.split('\n').find((line) => line.startsWith(`| Node.js, ${kind} |`));
  assert(commands.length > 1 && row, 'docs/permissions.md has the permissions');
  const words = `${commands.join(' ')} ${row.replaceAll('\\|', '|')}`.split(/[\s`,]+/);
  return words.filter((word) => /^[+&]/.test(word));
}

/**
 * Runs `FILES` with these variables of the environment, one after the other, because observe.test.js flushes the server
 * that they share. Returns null if they pass, otherwise what they print.
 */
function played(environment) {
  const { NODE_TEST_CONTEXT, ...outside } = process.env; // with it, the files would report to the runner of this file
  const words = ['--test', '--test-force-exit', '--test-concurrency=1', ...FILES];
  return new Promise((resolve) => {
    const env = { ...outside, ...environment };
    execFile(process.execPath, words, { env }, (error, stdout) => resolve(error && stdout));
  });
}

describe('permissions', { concurrency: 2 }, () => {
  for (const kind of ['ioredis', 'node-redis']) test(`${kind}: the documented permissions are enough`, async () => {
    const { port, run } = await start();
    await run('ACL', 'SETUSER', 'worker', 'reset', 'on', '>secret', '~*', ...(await permissionsOf(kind)));
    const environment = { DLOCK_TEST_PORT: String(port), DLOCK_TEST_USER: 'worker', DLOCK_TEST_KIND: kind };
    assert.equal(await played(environment), null);
    // Without a count, the reply has ten entries. The server keeps 128.
    const denied = (await run('ACL', 'LOG', '128')).map((entry) => entry[entry.indexOf('object') + 1]);
    // ioredis and node-redis send CLIENT SETINFO when they connect, and go on if it is denied.
    assert.deepEqual(denied.filter((command) => !command.startsWith('client|set')), []);
  });
});
