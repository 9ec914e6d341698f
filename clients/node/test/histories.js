/** Reads the histories that all packages play: see their README. */

import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

/** Where the histories may be: beside the tests, where these are installed, or in the checkout. */
const PLACES = ['../histories', '../../../tests/clients/histories'].map((place) => join(import.meta.dirname, place));

/** The histories in a text. */
function historiesIn(text) {
  const histories = [];
  for (const line of text.split('\n')) {
    if (line.trim() === '' || line.startsWith('#')) continue;
    if (line.startsWith('history ')) {
      histories.push({ name: line.slice(8).trim(), lines: [] });
      continue;
    }
    const [happens, expects = ''] = line.split(/\s:\s/);
    const [at, ...event] = happens.trim().split(/\s+/);
    const expected = expects.split(',').map((each) => each.trim()).filter((each) => each);
    histories.at(-1).lines.push({ at: Number(at), event, expected, text: line });
  }
  return histories;
}

/** The histories of validities or of attempts, written by hand and generated. */
export function historiesOf(kind) {
  for (const place of PLACES) {
    let names;
    try {
      names = readdirSync(place).filter((name) => name.endsWith('.txt'));
    } catch {
      continue;
    }
    const all = (isGenerated) =>
      names
        .filter((name) => name.startsWith('generated') === isGenerated)
        .flatMap((name) => historiesIn(readFileSync(join(place, name), 'utf8')))
        .filter(({ lines }) => (lines[0].event[0] === 'acquire') === (kind === 'attempt'));
    return { written: all(false), generated: all(true) };
  }
  throw new Error('there are no histories');
}

/** The options `name=value` of an event. */
export function optionsOf(words) {
  return Object.fromEntries(words.filter((word) => word.includes('=')).map((word) => word.split('=')));
}
