// SPDX-License-Identifier: MIT OR Apache-2.0
// Keeps some 20 MiB of objects and strings, makes garbage, and looks at all that it keeps until its time is up.
const count = 24000;
const made = (n) => ({ number: n, text: `text ${n}`.repeat(8), list: Array.from({ length: 24 }, (_, at) => n * 31 + at) });
const kept = new Map();
for (let n = 0; n < count; n++) kept.set(n, made(n));
require('fs').writeFileSync(process.argv[3], '');
const end = Date.now() + Number(process.argv[2]) * 1000;
let wrong = 0;
let turn = 0;
do {
  for (let n = 0; n < count; n++) {
    const one = kept.get(n);
    if (one.number !== n || one.text.length !== `text ${n}`.length * 8) wrong++;
    for (let at = 0; at < 24; at++) if (one.list[at] !== n * 31 + at) wrong++;
    if (n % 16 === turn % 16) kept.set(n, made(n));
  }
  turn++;
} while (Date.now() < end);
const hash = require('crypto').createHash('sha256');
for (let n = 0; n < count; n++) hash.update(kept.get(n).text).update(String(kept.get(n).list[n % 24]));
console.log('node', kept.size, hash.digest('hex'), 'wrong', wrong);
