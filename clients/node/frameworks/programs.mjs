import { execFile } from 'node:child_process';
import { readFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

/** Runs the compiled program of the README that has a word, on the server of the tests. */
export async function readme(name, word) {
  const directory = join(import.meta.dirname, 'programs');
  for (const file of await readdir(directory)) {
    const text = await readFile(join(directory, file), 'utf8');
    if (!text.includes(word)) continue;
    const port = process.env.DLOCK_TEST_PORT;
    const program = join(directory, `${name}.mjs`);
    await writeFile(program, text.replace('new Redis()', `new Redis(${port})`).replace('port: 6379', `port: ${port}`));
    return promisify(execFile)(process.execPath, [program], { timeout: 60_000 });
  }
  throw new Error(`no program of the README has ${word}`);
}
