/** Reads the histories that the tests of all packages play: tests/clients/histories/README.md describes them. */

import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

/** Where the histories may be: beside the tests, if tests/clients/node.sh has copied both, or in the checkout. */
const PLACES = ['../histories', '../../../tests/clients/histories'].map((place) => join(import.meta.dirname, place));

/** Returns the histories in a text. */
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

/** Returns the histories of a kind, `validity` or `attempt`: those that are `written` by hand, and the `generated`. */
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
  throw new Error(`no histories in ${PLACES.join(' or ')}`);
}

/** Returns the options among the words of an event, which have the form `name=value`. */
export function optionsOf(words) {
  return Object.fromEntries(words.filter((word) => word.includes('=')).map((word) => word.split('=')));
}
