//! Waiting in the queue: `BLOCK`. Who is next, what serves it, and how a wait ends.

mod barging;
mod borders;
mod chaos;
mod deadlock;
mod ends;
mod freed_by_commands;
mod freed_by_time;
mod freed_in_transactions;
mod gone;
mod meddled;
mod memory;
mod order;
mod overwritten;
mod paused;
mod refused_writes;
mod replicated;
mod same_turn;
mod seen;
mod slots;
mod upgrade;
