import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

/** Waits for a condition. The limit is long, because the machine may be busy. */
export async function until(what, condition) {
  for (const end = Date.now() + 60_000; !(await condition()); ) {
    assert(Date.now() < end, `waited in vain: ${what}`);
    await sleep(20);
  }
}
