'use strict';

/**
 * The length of a lease, as far as it is known. The server sets it when it executes a renewal: late if the answer was lost, and
 * in any order for renewals on several connections. So a lock counts with the shortest that the server may have.
 */
class Lengths {
  /** The server has no shorter one. */
  sure;
  /** Renewals without an answer so far, and the shortest lease since the first of them was sent. */
  #open = 0;
  #shortest;

  /** @param {number} lease */
  constructor(lease) {
    this.sure = this.#shortest = lease;
  }

  /** @param {number} lease that a renewal asks for */
  sends(lease) {
    if (this.#open === 0 || lease < this.#shortest) this.#shortest = lease;
    this.#open += 1;
    this.sure = Math.min(this.sure, lease);
  }

  /**
   * A renewal that was sent once has its answer.
   *
   * @param {boolean} isExecuted and it counts
   */
  answered(isExecuted) {
    this.#open -= 1;
    if (isExecuted) this.sure = this.#shortest;
  }
}

exports.Lengths = Lengths;
