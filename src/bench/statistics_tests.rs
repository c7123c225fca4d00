use super::*;

const TIME: Figure = Figure {
    name: "a",
    about: "",
    unit: "ns",
    limit: "b",
    better: Better::Lower,
    target: Target::ByRegime(1.25, 2.2, 1.5),
};

fn round(before: f64, after: f64, value: f64, limit: f64) -> Round {
    Round { before, after, taken: vec![Taken::new(vec![value], vec![limit])] }
}

fn rounds(all: Vec<Round>) -> Rounds {
    Rounds { wanted: all.len(), all, load: 0.5 }
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn quantiles_are_samples() {
    let values: Vec<f64> = (1..=101).rev().map(f64::from).collect();
    assert!(same(median(&values), 51.0) && same(quantile(&values, 0.99), 100.0), "{values:?}");
    assert!(same(quantile(&values, 0.0), 1.0) && same(quantile(&values, 1.0), 101.0));
    assert!(median(&[]).is_nan());
}

#[test]
fn a_round_counts_where_the_line_stays_within_a_tenth() {
    assert!(!round(300.0, 329.0, 1.0, 1.0).moved() && !round(329.0, 300.0, 1.0, 1.0).moved());
    assert!(round(300.0, 331.0, 1.0, 1.0).moved() && round(331.0, 300.0, 1.0, 1.0).moved());
}

#[test]
fn rounds_in_which_the_line_moved_do_not_count() {
    let measured = rounds(vec![
        round(300.0, 300.0, 600.0, 300.0),
        round(300.0, 100.0, 60.0, 300.0),
        round(300.0, 301.0, 660.0, 300.0),
        round(100.0, 300.0, 60.0, 300.0),
        round(302.0, 300.0, 630.0, 300.0),
    ])
    .measured(0, &TIME);
    assert_eq!((measured.rounds_kept, measured.rounds_dropped), (3, 2));
    assert!(same(measured.value, 630.0) && same(measured.ratio, 2.1), "{measured:?}");
    assert_eq!((measured.regime, measured.at_least), (Some(Regime::Far), Some(1.5)));
    assert_eq!(measured.verdict, Verdict::Missed);
}

#[test]
fn rounds_of_the_rarer_regime_do_not_count() {
    let near = |value| round(100.0, 100.0, value, 100.0);
    let measured = rounds(vec![near(200.0), near(210.0), round(400.0, 400.0, 100.0, 100.0), near(220.0)]);
    let measured = measured.measured(0, &TIME);
    assert_eq!((measured.rounds_kept, measured.rounds_dropped), (3, 1));
    assert!(same(measured.ratio, 2.1) && same(measured.line_ns.unwrap_or_default(), 100.0), "{measured:?}");
    assert_eq!((measured.regime, measured.at_least), (Some(Regime::Near), Some(2.2)));
    assert_eq!(measured.verdict, Verdict::AtLeast);
}

#[test]
fn where_the_line_moved_in_most_rounds_there_is_a_figure_and_no_verdict() {
    let moved = round(100.0, 200.0, 100.0, 100.0);
    let none = rounds(vec![moved.clone(), moved.clone(), moved.clone()]).measured(0, &TIME);
    assert_eq!((none.rounds_kept, none.rounds_dropped, none.verdict), (0, 3, Verdict::Unsteady));
    assert!(same(none.ratio, 1.0), "{none:?}");
    let steady = round(100.0, 100.0, 100.0, 100.0);
    let one = rounds(vec![moved.clone(), steady.clone(), moved]).measured(0, &TIME);
    assert_eq!((one.rounds_kept, one.verdict), (1, Verdict::Unsteady));
    let all = Rounds { wanted: 1, ..rounds(vec![steady]) }.measured(0, &TIME);
    assert_eq!(all.verdict, Verdict::Goal);
}

#[test]
fn the_ratio_is_the_median_of_ratios_and_not_that_of_medians() {
    let all = vec![(100.0, 100.0), (300.0, 100.0), (200.0, 400.0)];
    let all = all.into_iter().map(|(value, limit)| round(300.0, 300.0, value, limit)).collect();
    let measured = rounds(all).measured(0, &TIME);
    assert!(same(measured.value, 200.0) && same(measured.limit_value, 100.0), "{measured:?}");
    assert!(same(measured.ratio, 1.0), "{measured:?}");
}

#[test]
fn the_tail_is_of_all_samples_of_rounds_that_count() {
    let samples = |n: u32| (0..100).map(|i| f64::from(n * 100 + i)).collect::<Vec<_>>();
    let mut all: Vec<_> = (0..3).map(|n| round(300.0, 300.0, f64::from(n), 1.0)).collect();
    for (n, round) in (0..).zip(&mut all) {
        round.taken[0].value = samples(n);
    }
    all[2].after = 500.0;
    let slow = rounds(all.clone()).measured(0, &TIME);
    assert!(same(slow.p99, 197.0), "{slow:?}");
    let fast = rounds(all.clone()).measured(0, &Figure { better: Better::Higher, ..TIME });
    assert!(same(fast.p99, 2.0), "{fast:?}");
    all[0].taken[0].value_tail = vec![7.0];
    let own = rounds(all).measured(0, &TIME);
    assert!(same(own.p99, 7.0), "{own:?}");
}

#[test]
fn a_mark_is_reached_from_its_side() {
    let of = |better, ratio| verdict(better, ratio, Some(1.5), Some(if better == Better::Lower { 2.0 } else { 1.0 }));
    assert_eq!(
        [1.5, 1.6, 2.1].map(|ratio| of(Better::Lower, ratio)),
        [Verdict::Goal, Verdict::AtLeast, Verdict::Missed]
    );
    assert_eq!(
        [1.5, 1.4, 0.9].map(|ratio| of(Better::Higher, ratio)),
        [Verdict::Goal, Verdict::AtLeast, Verdict::Missed]
    );
    assert_eq!(verdict(Better::Lower, 1.0, None, None), Verdict::Free);
}

#[test]
fn a_count_beside_none_is_its_own_ratio() {
    let figure = Figure { target: Target::Fixed(0.0, 1.0), ..TIME };
    let quiet = counted(&figure, &[0.0], 0.0);
    assert!(same(quiet.ratio, 0.0) && quiet.verdict == Verdict::Goal && same(quiet.spread, 0.0), "{quiet:?}");
    let busy = counted(&figure, &[5.0, 6.0, 7.0], 0.0);
    assert!(same(busy.ratio, 6.0) && busy.verdict == Verdict::Missed, "{busy:?}");
    let one = counted(&Figure { target: Target::None, ..TIME }, &[3.0], 1.0);
    assert!(same(one.ratio, 3.0) && one.verdict == Verdict::Free, "{one:?}");
}
