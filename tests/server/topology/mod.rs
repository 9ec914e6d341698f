//! Several servers: replicas, Sentinels, clusters. Clients contend for locks while another server becomes the primary,
//! planned or not, and while slots move. They see what the contract says.

mod cluster_failover;
mod contest;
mod player;
mod referee;
mod replicas;
mod sentinel;
mod slots;
