// The npm package cluster-key-slot has no types of its own. Only the type check of this repository uses this file.
declare module 'cluster-key-slot' {
  const slotOf: (key: string | Buffer) => number;
  export = slotOf;
}
