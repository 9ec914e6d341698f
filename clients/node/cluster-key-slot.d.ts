// The package has no types of its own. Only the type check of this checkout uses this file.
declare module 'cluster-key-slot' {
  const slotOf: (key: string | Buffer) => number;
  export = slotOf;
}
