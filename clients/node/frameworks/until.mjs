import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

/** Waits until the condition holds, for a minute: the machine may be busy. `what` describes it in the error. */
export async function until(what, condition) {
  for (const end = Date.now() + 60_000; !(await condition()); ) {
    assert(Date.now() < end, `waited in vain: ${what}`);
    await sleep(20);
  }
}
