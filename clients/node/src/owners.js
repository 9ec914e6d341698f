'use strict';
/** Owners: each acquisition has one of its own, and people see in it who holds a lock. */

const { randomFillSync } = require('node:crypto');
const { hostname } = require('node:os');

const { mustBe } = require('./words.js');

/** The longest owner, its random end, and so the longest label of a program, in bytes. */
const LONGEST = 64;
const END = 16;
const LONGEST_LABEL = LONGEST - END - 1;

/** The name of this machine, in letters, digits, dots, hyphens and underscores. */
const HOST = hostname().replaceAll(/[^\w.-]/g, '-') || 'host';

let acquisitions = 0;

/** Random bytes for many owners, and how many of them are used: a call for few bytes takes as long as one for many. */
const random = Buffer.alloc(1024);
let used = random.length;

function randomEnd() {
  if (used === random.length) {
    randomFillSync(random);
    used = 0;
  }
  used += END / 2;
  return random.toString('hex', used - END / 2, used);
}

/**
 * An owner that nobody else has: `HOST:PID:NUMBER:RANDOM`, or the label and a random end.
 *
 * @param {string} label may be empty
 */
function newOwner(label) {
  const begin = label || placeOf(HOST, process.pid, (acquisitions += 1));
  return `${begin}:${randomEnd()}`;
}

/**
 * @param {string} host
 * @param {number} pid
 * @param {number} number
 */
function placeOf(host, pid, number) {
  const end = `:${pid}:${number}`;
  return host.slice(0, LONGEST_LABEL - end.length) + end;
}

/**
 * The owner without its random end: its label, if it has one.
 *
 * @param {string} owner
 */
function labelOf(owner) {
  return owner.slice(0, -END - 1);
}

/** @param {unknown} label */
function checkLabel(label) {
  if (typeof label !== 'string') throw new TypeError(mustBe('owner', 'a string, such as web-1', label));
  const length = Buffer.byteLength(label);
  if (length > LONGEST_LABEL) throw new RangeError(`owner must have ${LONGEST_LABEL} bytes at most, not ${length}`);
  if (/[\x00-\x1f\x7f]/.test(label)) throw new TypeError('owner must have no control characters');
}

module.exports = { checkLabel, labelOf, newOwner, placeOf };
