//! Whether figures are still those of the run that was kept.

use crate::contenders::SET_DEL;
use crate::ledger::Ledger;

/// Returns the figures that have moved from those that were kept, in words. Figures are compared as ratios to
/// `SET NX PX` + `DEL` of the same run and mode, so that the machine and its libraries do not matter. Better ones are
/// reported, too: as long as they are not kept, they could get worse again unseen.
pub fn moved(kept: Option<&Ledger>, now: &Ledger) -> Vec<String> {
    let Some(kept) = kept else { return Vec::new() };
    now.figures()
        .filter_map(|(name, _)| {
            let (before, now) = (ratio(kept, name), ratio(now, name)?);
            match before {
                Some(before) if (now / before - 1.0).abs() <= MOVED_AT_MOST => None,
                Some(before) => {
                    let by = (now / before - 1.0) * 100.0;
                    Some(format!("{name}: {now:.3} of SET NX PX + DEL, was {before:.3} ({by:+.1} %)"))
                }
                None => Some(format!("{name}: {now:.3} of SET NX PX + DEL, was not kept")),
            }
        })
        .collect()
}

/// Returns the ratio of a figure to the yardstick's in the same mode.
fn ratio(ledger: &Ledger, name: &str) -> Option<f64> {
    let (sort, _) = name.rsplit_once('/')?;
    Some(ledger.figure(name)?.median / ledger.figure(&format!("{sort}/{SET_DEL}"))?.median)
}

/// The largest part by which a ratio may differ unreported.
const MOVED_AT_MOST: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Figure;

    fn ledger(set_del: f64, acquire: f64) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.note("instructions/none/set-del".into(), Figure::once(set_del));
        ledger.note("instructions/none/acquire".into(), Figure::once(acquire));
        ledger
    }

    #[test]
    fn a_ratio_that_moved_over_5_per_cent_up_or_down_is_reported() {
        let kept = ledger(100.0, 150.0);
        assert_eq!(moved(Some(&kept), &ledger(200.0, 314.0)), [""; 0]);
        assert_eq!(
            moved(Some(&kept), &ledger(100.0, 158.0)),
            ["instructions/none/acquire: 1.580 of SET NX PX + DEL, was 1.500 (+5.3 %)"]
        );
        assert_eq!(
            moved(Some(&kept), &ledger(100.0, 142.0)),
            ["instructions/none/acquire: 1.420 of SET NX PX + DEL, was 1.500 (-5.3 %)"]
        );
    }

    #[test]
    fn a_new_figure_is_reported_if_others_were_kept() {
        let mut kept = Ledger::default();
        kept.note("instructions/none/set-del".into(), Figure::once(100.0));
        assert_eq!(moved(Some(&kept), &ledger(100.0, 150.0)).len(), 1);
        assert_eq!(moved(None, &ledger(100.0, 150.0)), [""; 0]);
    }
}
