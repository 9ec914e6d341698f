export * from './nest.js';
