//! Traces, as tables of comma-separated values.

use edgeward_kube::units::Micros;

const MOST_ROWS: usize = 5_000_000;

/// Reads the rows of a table with these columns. The first `required` columns must be present. An empty or missing cell
/// is `None`.
fn rows<const N: usize>(text: &str, columns: [&str; N], required: usize) -> Result<Vec<[Option<f64>; N]>, String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let header: Vec<_> = lines
        .next()
        .map_or_else(Vec::new, |(_, line)| line.split(',').map(str::trim).collect());
    if let Some(unknown) = header.iter().find(|name| !columns.contains(name)) {
        return Err(format!("column {unknown:?} is not one of {}", columns.join(", ")));
    }
    let places = columns.map(|column| header.iter().position(|name| *name == column));
    if let Some(missing) = (0..required).find(|at| places[*at].is_none()) {
        return Err(format!("has no column {:?}", columns[missing]));
    }
    let mut rows = vec![];
    for (number, line) in lines {
        let cells: Vec<_> = line.split(',').map(str::trim).collect();
        if cells.len() > header.len() {
            return Err(format!(
                "line {} has {} cells, more than columns",
                number + 1,
                cells.len()
            ));
        }
        let mut row = [None; N];
        for (at, place) in places.into_iter().enumerate() {
            let cell = place.and_then(|place| cells.get(place)).filter(|cell| !cell.is_empty());
            row[at] = match cell.map(|cell| cell.parse::<f64>()) {
                None => None,
                Some(Ok(number)) if number.is_finite() && number >= 0.0 => Some(number),
                Some(_) => {
                    return Err(format!(
                        "line {}: {} is not a number of at least 0",
                        number + 1,
                        columns[at]
                    ));
                }
            };
        }
        if row[0].is_none() {
            return Err(format!("line {} has no {}", number + 1, columns[0]));
        }
        if rows.len() == MOST_ROWS {
            return Err(format!("has more than {MOST_ROWS} rows"));
        }
        rows.push(row);
    }
    if !rows.is_sorted_by(|one, next| one[0] <= next[0]) {
        return Err(format!("is not sorted by {}", columns[0]));
    }
    Ok(rows)
}

fn micros(seconds: f64) -> Micros {
    Micros((seconds * 1e6).round() as u64)
}

/// Reads the columns `atSeconds` and, optionally, `count`: the number of arrivals at that time.
pub(super) fn arrivals(text: &str) -> Result<Vec<(Micros, u32)>, String> {
    let rows = rows(text, ["atSeconds", "count"], 1)?;
    let row = |[at, count]: [Option<f64>; 2]| (micros(at.unwrap_or(0.0)), count.unwrap_or(1.0) as u32);
    Ok(rows.into_iter().map(row).collect())
}

/// Reads the columns `atSeconds`, `rttMs` and, optionally, `lossPct`. An empty `rttMs` means that nothing passes.
pub(super) fn wan(text: &str) -> Result<Vec<(Micros, Option<f64>, f64)>, String> {
    let rows = rows(text, ["atSeconds", "rttMs", "lossPct"], 2)?;
    let row =
        |[at, rtt, loss]: [Option<f64>; 3]| (micros(at.unwrap_or(0.0)), rtt, loss.unwrap_or(0.0).min(100.0) / 100.0);
    Ok(rows.into_iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_blank_cells_have_defaults() {
        assert_eq!(
            arrivals("atSeconds,count\n0.5,2\n\n1,\n").unwrap(),
            [(Micros(500_000), 2), (Micros(1_000_000), 1)]
        );
        assert_eq!(
            wan("atSeconds,rttMs,lossPct\n0,20,1\n5,,\n").unwrap(),
            [(Micros(0), Some(20.0), 0.01), (Micros(5_000_000), None, 0.0)]
        );
    }

    #[test]
    fn trace_faults_name_line_or_column() {
        for (text, fault) in [
            ("", "has no column \"atSeconds\""),
            ("at,count\n", "column \"at\" is not one of atSeconds, count"),
            ("atSeconds\n1\nx\n", "line 3: atSeconds is not a number of at least 0"),
            ("atSeconds\n-1\n", "line 2: atSeconds is not a number of at least 0"),
            ("atSeconds,count\n,1\n", "line 2 has no atSeconds"),
            ("atSeconds\n1,2\n", "line 2 has 2 cells, more than columns"),
            ("atSeconds\n2\n1\n", "is not sorted by atSeconds"),
        ] {
            assert_eq!(arrivals(text), Err(fault.to_owned()), "{text:?}");
        }
    }
}
