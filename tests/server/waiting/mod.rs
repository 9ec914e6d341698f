//! Waiting in the queue: `BLOCK`. The order, the causes of a grant, and the ends of a wait.

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
mod rights;
mod same_turn;
mod seen;
mod slots;
mod upgrade;
