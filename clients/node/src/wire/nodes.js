'use strict';
/** The nodes of a cluster. */

const { unlessAborted } = require('../time.js');

/** @param {object} options of a node's client */
function addressOf(options) {
  const { host, port } = /** @type {{ host?: string, port?: number }} */ (options);
  return `${host}:${port}`;
}

/**
 * The node that has a slot now. The nodes of a cluster that can be reached are asked, and the first answer counts. If
 * it is out of date, the next attempt asks again.
 *
 * @param {{ host: string, slots: () => Promise<unknown> }[]} nodes
 * @param {number} slot
 * @param {AbortSignal | undefined} signal
 * @returns {Promise<{ host: string, port: number } | undefined>}
 */
async function homeOf(nodes, slot, signal) {
  if (nodes.length === 0) return undefined;
  const answers = nodes.map(async ({ host, slots }) => {
    const ranges = /** @type {[number, number, [string, number]][]} */ (await slots());
    const range = ranges.find(([first, last]) => first <= slot && slot <= last);
    if (!range) throw new Error('the cluster has no node for the key');
    const [name, port] = range[2];
    return { host: name || host, port: Number(port) };
  });
  return unlessAborted(Promise.any(answers), signal);
}

module.exports = { addressOf, homeOf };
