/** How taking and keeping a lock fails, and which failures may be tried again. */

/** The lock was not granted within the time given to wait. */
export class NotGranted extends Error {
  /** @param {string} resource */
  constructor(resource) {
    super(`not granted: ${resource}`);
    this.name = 'NotGranted';
    this.resource = resource;
  }
}

/** The lock is, or must be taken to be, no longer held. */
export class LockLost extends Error {
  /**
   * @param {string} resource
   * @param {string} why
   * @param {unknown} [cause] of not knowing better, if a command failed
   */
  constructor(resource, why, cause) {
    super(`lock lost: ${resource}: ${why}`, cause === undefined ? undefined : { cause });
    this.name = 'LockLost';
    this.resource = resource;
  }
}

/**
 * Whether the outcome of the command is unknown, or was only "not now", so that the same command with the same
 * REQUEST may be sent again. What the server answers begins with a code in upper case; whatever else a client rejects
 * with (a closed socket, a timeout) is not an answer.
 *
 * @param {unknown} error
 */
export function mayRepeat(error) {
  const message = error instanceof Error ? error.message : '';
  if (error instanceof TypeError || error instanceof RangeError) return false;
  return !/^[A-Z]{2,}[A-Z0-9]* /.test(message) || /^(LOADING |UNBLOCKED .*state changed)/.test(message);
}

/**
 * Sends a command that does no harm if it is executed twice, again if need be. A client that has lost its connection
 * keeps what it is given until it has a new one, so the second try is usually the last.
 *
 * @param {() => Promise<unknown>} send
 */
export async function persist(send) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await send();
    } catch (error) {
      if (tries === 3 || !mayRepeat(error)) throw error;
    }
  }
}
