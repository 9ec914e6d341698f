// `node readme.mjs README.md DIRECTORY [LANGUAGE…]` writes each program of the README into a file in DIRECTORY, so
// that `tsc` can check it. A program is a block of code in one of the languages. By default these are `js` and `ts`.
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Returns the text of each block of code in one of these languages. */
export async function programsOf(readme, languages) {
  const text = await readFile(readme, 'utf8');
  return [...text.matchAll(/^```(\w+)\n(.*?)^```$/gms)]
    .filter(([, language]) => languages.includes(language))
    .map(([, , program]) => program);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [readme, directory, ...languages] = process.argv.slice(2);
  const programs = await programsOf(readme, languages.length > 0 ? languages : ['js', 'ts']);
  if (programs.length === 0) throw new Error(`there is no program in ${readme}`);
  await mkdir(directory, { recursive: true });
  await Promise.all(programs.map((program, number) => writeFile(join(directory, `readme-${number}.mts`), program)));
}
