'use strict';
/** The words of errors about arguments. */

/**
 * Returns the message of an error about an argument, which names what was given.
 *
 * @param {string} name
 * @param {string} kind what the argument has to be
 * @param {unknown} value what it is
 */
function mustBe(name, kind, value) {
  return `${name} must be ${kind}, not ${inWords(value)}`;
}

/**
 * Describes a value. The contents of an object may be long, or secret, so only its type is told.
 *
 * @param {unknown} value
 */
function inWords(value) {
  if (Array.isArray(value)) return `an array of length ${value.length}`;
  if (value === null) return 'null';
  if (typeof value === 'object' || typeof value === 'function') return `a value of type ${typeof value}`;
  if (typeof value === 'bigint') return `${value}n`;
  return typeof value === 'string' ? JSON.stringify(value) : String(value);
}

module.exports = { mustBe };
