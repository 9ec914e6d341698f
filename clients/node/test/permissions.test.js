import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import { start } from './servers.js';

const root = join(import.meta.dirname, '..');
const FILES = ['arguments', 'locks', 'observe', 'several', 'waiting'].map((name) => join(root, `test/${name}.test.js`));

/** The permissions that docs/permissions.md grants: the commands of locks, and those that the client needs. */
async function permissionsOf(kind) {
  const page = await readFile(join(root, 'permissions.md'), 'utf8');
  const commands = [...page.matchAll(/^127\.0\.0\.1:6379> ACL SETUSER worker (.*)$/gm)].map(([, rules]) => rules);
  const row = page.split('\n').find((line) => line.startsWith(`| Node.js, ${kind} |`));
  assert(commands.length > 1 && row, 'docs/permissions.md has the permissions');
  const words = `${commands.join(' ')} ${row.replaceAll('\\|', '|')}`.split(/[\s`,]+/);
  return words.filter((word) => /^[+&]/.test(word));
}

/** Runs files of this suite, and gives what they print if they fail. */
function played(environment) {
  const { NODE_TEST_CONTEXT, ...outside } = process.env; // or they would report to this file's runner
  const words = ['--test', '--test-force-exit', ...FILES];
  return new Promise((resolve) => {
    const env = { ...outside, ...environment };
    execFile(process.execPath, words, { env }, (error, stdout) => resolve(error && stdout));
  });
}

describe('permissions', { concurrency: 2 }, () => {
  for (const kind of ['ioredis', 'node-redis']) test(`${kind}: those of the documentation are enough`, async () => {
    const { port, run } = await start();
    await run('ACL', 'SETUSER', 'worker', 'reset', 'on', '>secret', '~*', ...(await permissionsOf(kind)));
    const environment = { DLOCK_TEST_PORT: String(port), DLOCK_TEST_USER: 'worker', DLOCK_TEST_KIND: kind };
    assert.equal(await played(environment), null);
    const denied = (await run('ACL', 'LOG')).map((entry) => entry[entry.indexOf('object') + 1]);
    // Clients try to tell the server their names, and go on if that is denied.
    assert.deepEqual(denied.filter((command) => !command.startsWith('client|set')), []);
  });
});
