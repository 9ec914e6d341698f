/** A server in memory on a free port. Its clock can be moved on. */
export declare class LockServer {
  private constructor()
  readonly port: number
  readonly url: string
  /** Moves the server's clock on, ends the leases that end in this time, and grants their locks to the waiters. */
  advance(milliseconds: number): Promise<void>
  /** Ends the server. */
  close(): Promise<void>
}

/**
 * Starts `dlock serve` for a test. The command is `DLOCK_COMMAND`, or `dlock` on the path, unless it is given. Rejects if
 * there is no such command, or if it does not start.
 */
export declare function startServer(settings?: { command?: string; options?: string[] }): Promise<LockServer>
