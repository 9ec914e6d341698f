//! `DLOCK.RELEASE`: one entry, all entries, those of one mode, or only the hold with a token.

use crate::support::story::tell;

#[test]
fn only_the_owner_releases() {
    tell(
        "RELEASE k a         -> nil
         ACQUIRE k a         -> t1
         RELEASE k b         -> nil
         RELEASE k b ALL     -> nil
         RELEASE k b TOKEN t1 -> nil
         RELEASE k *         -> nil
         INFO k              -> count=1
         RELEASE k a         -> 1",
    );
}

#[test]
fn a_mode_that_is_not_held_is_not_released() {
    tell(
        "ACQUIRE w a         -> t1
         RELEASE w a READ    -> nil
         RELEASE w a READ ALL -> nil
         INFO w              -> count=1
         RELEASE w a WRITE   -> 1
         RLOCK r a           -> t2
         RELEASE r a WRITE   -> nil
         RELEASE r a ALL WRITE -> nil
         INFO r              -> count=1
         RELEASE r a READ    -> 1",
    );
}

#[test]
fn of_two_modes_one_must_be_named() {
    tell(
        "WLOCK k a           -> t1
         RLOCK k a           -> t2
         RELEASE k a         -> ! AMBIGUOUS
         INFO k              -> mode=both count=2
         RELEASE k a READ    -> 1
         RELEASE k a         -> 1
         EXISTS k            -> 0
         WLOCK k a           -> t3
         RLOCK k a           -> t4
         RELEASE k a WRITE   -> 1
         RELEASE k a         -> 1",
    );
}

#[test]
fn all_gives_up_every_entry() {
    tell(
        "RACQUIRE k a        -> t1
         RACQUIRE k a        -> t1
         RACQUIRE k a        -> t1
         RELEASE k a ALL     -> 1
         EXISTS k            -> 0
         # ALL with a mode gives up the entries of that mode.
         WLOCK k a           -> t2
         WLOCK k a           -> t2
         RLOCK k a           -> t3
         RLOCK k a           -> t3
         RELEASE k a ALL WRITE -> 1
         INFO k              -> mode=shared count=2
         # ALL without a mode gives up the entries of both.
         WLOCK k a           -> t4
         WLOCK k a           -> t4
         INFO k              -> mode=both count=4
         RELEASE k a ALL     -> 1
         EXISTS k            -> 0
         # ALL leaves the entries of other owners.
         RLOCK k a           -> t5
         RLOCK k a           -> t5
         RLOCK k b           -> t6
         RELEASE k a ALL     -> 1
         INFO k FULL         -> holds=b",
    );
}

#[test]
fn a_late_release_cannot_touch_the_next_hold() {
    tell(
        "ACQUIRE k a              -> t1
         RELEASE k a TOKEN t1     -> 1
         ACQUIRE k a              -> t2
         RELEASE k a TOKEN t1     -> nil
         RELEASE k a TOKEN t1 ALL -> nil
         INFO k                   -> token=t2 count=1
         RELEASE k a TOKEN t2     -> 1",
    );
}

#[test]
fn a_token_names_the_hold() {
    tell(
        "WLOCK k a                 -> t1
         WLOCK k a                 -> t1
         RLOCK k a                 -> t2
         RELEASE k a TOKEN t1      -> 0
         RELEASE k a TOKEN t2 WRITE -> nil
         RELEASE k a TOKEN t1 READ -> nil
         INFO k                    -> mode=both count=2
         RELEASE k a TOKEN t2      -> 1
         INFO k                    -> mode=exclusive count=1
         WLOCK k a                 -> t1
         RELEASE k a TOKEN t1 ALL  -> 1
         EXISTS k                  -> 0",
    );
}

#[test]
fn of_two_holds_with_one_token_the_mode_must_be_named() {
    tell(
        "RLOCK k a                        -> t1
         WLOCK k a                        -> t2
         RENEW k a READ MINTOKEN t2       -> 1
         RELEASE k a TOKEN t2             -> ! AMBIGUOUS
         INFO k                           -> mode=both count=2 token=t2
         RELEASE k a TOKEN t2 READ        -> 1
         INFO k                           -> mode=exclusive count=1
         RELEASE k a TOKEN t2             -> 1",
    );
}
