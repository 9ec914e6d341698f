//! Several servers: replicas, sentinels, clusters. While a primary gives way to another, as planned or
//! not, and while slots move, clients that contend for locks see what the contract says.

mod cluster_failover;
mod contest;
mod player;
mod referee;
mod replicas;
mod sentinel;
mod slots;
