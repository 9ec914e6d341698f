'use strict';

// A reporter for mocha that writes the results of tests to DLOCK_SUITE_RESULTS, as tests/suites/run reads them.
const { appendFileSync } = require('node:fs');

module.exports = function results(runner) {
  const note = (...words) => {
    const line = words.map((word) => String(word).replace(/\s+/g, ' ')).join('\t');
    console.log(line);
    appendFileSync(process.env.DLOCK_SUITE_RESULTS, `${line}\n`);
  };
  runner.on('pass', (test) => note('passed', test.fullTitle()));
  runner.on('fail', (test, error) => note('failed', test.fullTitle(), error.message));
  runner.on('pending', (test) => note('skipped', test.fullTitle(), 'pending'));
};
