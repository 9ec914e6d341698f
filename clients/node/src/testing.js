'use strict';

// A lock server of its own for tests, without Redis: the command `dlock serve`. It is DLOCK_COMMAND, or dlock on the path.

const { spawn } = require('node:child_process');
const { once } = require('node:events');
const net = require('node:net');
const readline = require('node:readline');

/** How long the command may take until it listens, and the server to answer, in ms. */
const [START, ANSWER] = [30_000, 10_000];

/** A server in memory on a free port. Its clock can be moved on. */
class LockServer {
  #process;

  /**
   * @param {import('node:child_process').ChildProcess} process
   * @param {number} port
   */
  constructor(process, port) {
    this.#process = process;
    this.port = port;
    this.url = `redis://127.0.0.1:${port}`;
  }

  /**
   * Moves the server's clock on: leases that end meanwhile have ended, and whoever waits for them has the lock.
   * @param {number} milliseconds
   */
  async advance(milliseconds) {
    const socket = net.connect(this.port, '127.0.0.1');
    socket.setTimeout(ANSWER, () => socket.destroy(new Error('the server does not answer')));
    socket.once('end', () => socket.destroy(new Error('the server has ended')));
    try {
      socket.write(`DLOCK.CLOCK ADVANCE ${Math.round(milliseconds)}\r\n`);
      const [reply] = await once(socket, 'data');
      if (!String(reply).startsWith(':')) throw new Error(`the clock does not move: ${reply}`);
    } finally {
      socket.destroy();
    }
  }

  /** Ends the server. */
  async close() {
    const { exitCode, signalCode } = this.#process;
    if (exitCode !== null || signalCode !== null) return;
    this.#process.ref();
    this.#process.kill('SIGKILL');
    await once(this.#process, 'exit');
  }
}

/**
 * Starts a server. Rejects if there is no such command, or if it does not start.
 * @param {{ command?: string, options?: string[] }} [settings]
 */
async function startServer({ command = process.env.DLOCK_COMMAND || 'dlock', options = [] } = {}) {
  const words = ['serve', '--port', '0', '--print-port', '--test-clock', ...options];
  const child = spawn(command, words, { stdio: ['ignore', 'pipe', 'ignore'] });
  const ended = new Promise((_, reject) => {
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`dlock serve ended with code ${code}`)));
  });
  // The server neither outlives the program nor keeps it running.
  const end = () => child.kill('SIGKILL');
  process.once('exit', end);
  child.once('close', () => process.off('exit', end));
  const limit = setTimeout(end, START);
  const lines = readline.createInterface({ input: child.stdout });
  const [line] = await Promise.race([once(lines, 'line'), ended]).finally(() => clearTimeout(limit));
  ended.catch(() => {});
  lines.close();
  child.stdout.destroy();
  child.unref();
  return new LockServer(child, Number(line));
}

module.exports = { LockServer, startServer };
