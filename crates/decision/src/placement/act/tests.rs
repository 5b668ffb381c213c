use super::*;

/// Every combination of facts, with its cells in the table.
fn combinations() -> impl Iterator<Item = (Facts, Vec<String>)> {
    let standings = Standing::ALL;
    let impossible = [
        Impossible::Size,
        Impossible::Stated,
        Impossible::Traits,
        Impossible::Other,
    ];
    let gates = [Gate::None, Gate::Within, Gate::Over];
    let enums = standings.into_iter().flat_map(move |edge| {
        standings.into_iter().flat_map(move |cloud| {
            let gated = move |impossible| gates.into_iter().map(move |gate| (edge, cloud, impossible, gate));
            impossible.into_iter().flat_map(gated)
        })
    });
    enums.flat_map(|(edge, cloud, impossible, gate)| {
        (0..1 << 8).map(move |bits: u32| {
            let flag = |at: u32| bits >> at & 1 == 1;
            let facts = Facts {
                edge,
                cloud,
                several_clouds: flag(0),
                impossible,
                gate,
                may_gate: flag(1),
                stale: flag(2),
                waits_for_terminating: flag(3),
                urgent: flag(4),
                late_cloud_is_sooner: flag(5),
                prefers_late_cloud: flag(6),
                clouds_are_lost: flag(7),
            };
            let mut columns = vec![format!("{edge:?}"), format!("{cloud:?}")];
            let mut flags = (0..8).map(|at| if flag(at) { "yes" } else { "no" }.to_owned());
            columns.extend(flags.next());
            columns.extend([format!("{impossible:?}"), format!("{gate:?}")]);
            columns.extend(flags);
            (facts, columns)
        })
    })
}

#[test]
fn actions_of_all_fact_combinations_match_the_table() {
    let table = include_str!("table.txt").lines().filter(|line| !line.starts_with('#'));
    let table: Vec<Vec<&str>> = table.map(|line| line.split_whitespace().collect()).collect();
    let mut used = vec![0_u32; table.len()];
    for (facts, columns) in combinations() {
        let matches = |line: &Vec<&str>| {
            let mut cells = line[1..].iter().zip(&columns);
            cells.all(|(cell, value)| *cell == "-" || cell.split('|').any(|one| one == value))
        };
        let at = table.iter().position(matches).unwrap();
        used[at] += 1;
        let (row, act) = act(&facts);
        let expected = (table[at][0], table[at][13]);
        assert_eq!((&*row.to_string(), &*format!("{act:?}")), expected, "{facts:?}");
    }
    assert!(
        used.iter().all(|count| *count > 0),
        "a line that never applies: {used:?}"
    );
}
