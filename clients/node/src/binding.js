'use strict';
/**
 * The holds that are bound to a named session, and until when each is certain. Pure: times come in as arguments, by a
 * clock that only goes forward. A server that was restarted or replaced has no bindings: the end of a hold that must be
 * bound again stays where it was until the hold is bound.
 */

/**
 * @typedef {object} Binding a hold that is bound to a session
 * @property {string} key the key of the hold, or the first of several
 * @property {number | undefined} database that has it, if it matters
 * @property {number} token
 * @property {(session: string) => string[][]} bind the commands that bind it
 * @property {string[][]} info the commands that ask for its cap
 * @property {(why: string, cause?: unknown) => void} lose
 * @property {number | undefined} unbound until when it is certain although it must be bound again
 * @property {number} cap until when no cap ends it
 * @property {boolean} isCapKnown
 */

class Bindings {
  /** @type {Set<Binding>} */
  #all = new Set();

  get size() {
    return this.#all.size;
  }

  get all() {
    return [...this.#all];
  }

  /** The key of the hold that was bound first. */
  get key() {
    const [first] = this.#all;
    return first?.key;
  }

  /** The holds that the server has to bind. */
  get unbound() {
    return this.all.filter(({ unbound }) => unbound !== undefined);
  }

  /** @param {Binding} binding */
  has(binding) {
    return this.#all.has(binding);
  }

  /** @param {Binding} binding of a hold that the server has bound */
  add(binding) {
    this.#all.add(binding);
  }

  /**
   * @param {Binding} binding of a hold that the server is to bind
   * @param {number} certain until when it is certain if it is not bound
   */
  adopt(binding, certain) {
    this.#all.add(binding);
    binding.unbound ??= certain;
  }

  /** @param {Binding} binding */
  delete(binding) {
    return this.#all.delete(binding);
  }

  /**
   * The server knows no session of this name.
   *
   * @param {number} until the time until which the session was certain
   */
  unbind(until) {
    for (const binding of this.#all) binding.unbound ??= until;
  }

  /**
   * Until when a hold is certain.
   *
   * @param {Binding} binding
   * @param {number} until the time until which the session is certain
   */
  untilOf({ unbound, cap }, until) {
    return Math.min(until, unbound ?? Infinity, cap);
  }

  /**
   * When the first hold is over, or the session.
   *
   * @param {number} until the time until which the session is certain
   */
  firstEnd(until) {
    let first = until;
    for (const binding of this.#all) first = Math.min(first, this.untilOf(binding, until));
    return first;
  }

  /**
   * Returns the holds that are over, each with the reason.
   *
   * @param {number} now
   * @returns {{ binding: Binding, why: string }[]}
   */
  over(now) {
    const over = [];
    for (const binding of this.#all) {
      const { unbound, cap } = binding;
      if (unbound !== undefined && now >= unbound) {
        over.push({ binding, why: 'it was not bound to the session again in time' });
      } else if (now >= cap) over.push({ binding, why: 'it reached its cap' });
    }
    return over;
  }

  /**
   * Returns the holds to bind after a heartbeat, those that end first before the others. If the server has fewer than it
   * must have, nobody knows which are missing: each stays certain for as long as it was until it is bound.
   *
   * @param {Binding[]} known those that were bound when the heartbeat was sent
   * @param {number} number how many holds the server has bound
   * @param {number} until the time until which the session was certain before this heartbeat
   */
  toBind(known, number, until) {
    const there = known.filter((binding) => this.#all.has(binding));
    const expected = there.reduce((sum, { info }) => sum + info.length, 0);
    if (number < expected) for (const binding of there) binding.unbound ??= until;
    return this.unbound.sort((one, other) => Number(one.unbound) - Number(other.unbound));
  }

  /**
   * Divides holds into pieces that fit into one exchange, each of one database.
   *
   * @param {Binding[]} some
   * @param {number} most
   */
  static pieces(some, most) {
    /** @type {Binding[][]} */
    const pieces = [];
    /** @type {Map<number | undefined, Binding[]>} */
    const open = new Map();
    for (const binding of some) {
      const piece = open.get(binding.database);
      if (piece && piece.length < most) piece.push(binding);
      else {
        const next = [binding];
        open.set(binding.database, next);
        pieces.push(next);
      }
    }
    return pieces;
  }

  /**
   * Returns the holds whose caps must be asked for: they have been held for about their lease. No cap ends a hold
   * earlier, because the server refuses a lease that is longer than `dlock.max-hold`.
   *
   * @param {number} soon
   */
  toLearn(soon) {
    return this.all.filter(({ isCapKnown, cap }) => !isCapKnown && cap <= soon);
  }
}

exports.Bindings = Bindings;
