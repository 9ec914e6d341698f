/** A server in memory on a free port, whose clock a test can move forward. */
export declare class LockServer {
  private constructor()
  readonly port: number
  readonly url: string
  /** Moves the server's clock forward, ends the leases that end in this time, and grants their locks to the waiters. */
  advance(milliseconds: number): Promise<void>
  /** Ends the server. */
  close(): Promise<void>
}

/**
 * Starts `dlock serve` for a test. Without `command`, the program is the one that the variable `DLOCK_COMMAND` names,
 * or else `dlock` on the path. Rejects if there is no such program, or if it does not start.
 */
export declare function startServer(settings?: { command?: string; options?: string[] }): Promise<LockServer>
