'use strict';
/** The reply of DLOCK.INFO. */

const { isAnswer, isNotPermitted } = require('./errors.js');
const { ROUNDED } = require('./validity.js');

/**
 * Reads a map, which version 2 of the protocol sends as a flat array. Some clients make an object of it.
 *
 * @param {unknown} reply
 * @returns {Map<string, unknown>}
 */
function fieldsOf(reply) {
  if (reply instanceof Map) return new Map([...reply].map(([name, value]) => [String(name), value]));
  if (!Array.isArray(reply)) return new Map(Object.entries(reply ?? {}));
  return new Map(reply.flatMap((name, at) => (at % 2 === 0 ? [[String(name), reply[at + 1]]] : [])));
}

/**
 * How many ms the holds with a token may still last, even if they are renewed. Infinity: no hold has a cap. undefined:
 * one of the holds is not there.
 *
 * @param {unknown[]} replies to DLOCK.INFO … OWNER, one for each key
 * @param {number} token
 * @returns {number | undefined}
 */
function capOf(replies, token) {
  let left = Infinity;
  for (const reply of replies) {
    const holds = /** @type {unknown[]} */ (fieldsOf(reply).get('holds') ?? []).map(fieldsOf);
    const hold = holds.find((fields) => Number(fields.get('token')) === token);
    if (!hold) return undefined;
    // Modules before 0.1.0 have no caps and no such field.
    const cap = hold.get('cap') ?? null;
    if (cap !== null) left = Math.min(left, Number(cap));
  }
  return left;
}

/**
 * Asks for the caps of holds. A cap stays unknown if the server does not have the hold, or answers with an error.
 *
 * @param {import('./binding.js').Binding[]} some
 * @param {(commands: string[][]) => Promise<unknown[]>} send
 */
async function learnCaps(some, send) {
  const asked = performance.now();
  try {
    const replies = await send(some.flatMap(({ info }) => info));
    for (const binding of some) {
      const left = capOf(replies.splice(0, binding.info.length), binding.token);
      if (left !== undefined) Object.assign(binding, { cap: asked + left - ROUNDED, isCapKnown: true });
    }
  } catch (error) {
    if (!isAnswer(error)) throw error;
    if (some.length > 1) for (const binding of some) await learnCaps([binding], send);
    // A user who may not ask is told by the next heartbeat that a cap has ended the hold.
    else if (isNotPermitted(error)) some.forEach((each) => Object.assign(each, { cap: Infinity, isCapKnown: true }));
  }
}

module.exports = { fieldsOf, learnCaps };
