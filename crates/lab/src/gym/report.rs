//! Reports that compare policies with each other and with the paper.

use serde::Serialize;
use serde_json::{Value, json};

use super::episode::Summary;
use super::settings::{Mode, Settings};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub policy: String,
    #[serde(flatten)]
    pub summary: Summary,
}

/// Rows of the paper's Table VII: policy and kind of reward, then reward, rejected %, cost and latency in ms. Some
/// deviations of Latency-Greedy are unknown.
const PAPER: &str = "\
resource-greedy | cost    | 909.22 ± 490.67  | 2.43 ± 4.21 | 6.65 ± 5.02  | 29.99 ± 15.29
latency-greedy  | latency | 89.04 ± 9.71     | 2.05        | 6.67         | 46.85
deepsets-ppo    | cost    | 1150.89 ± 289.90 | 1.22 ± 2.24 | 4.38 ± 2.81  | 57.84 ± 17.40
deepsets-ppo    | latency | 92.64 ± 7.11     | 0.00 ± 0.00 | 11.74 ± 4.89 | 28.57 ± 14.55
deepsets-dqn    | cost    | 1143.67 ± 256.60 | 3.90 ± 5.84 | 4.08 ± 2.58  | 85.14 ± 56.71
deepsets-dqn    | latency | 87.98 ± 21.62    | 0.31 ± 1.18 | 5.76 ± 2.78  | 42.17 ± 34.10";

const COLUMNS: [&str; 5] = ["policy", "reward", "rejected %", "cost", "latency ms"];

/// Returns the paper's row of a policy: reward, rejected %, cost and latency in ms. The paper has rows for four
/// clusters and instant departures only.
fn paper(policy: &str, settings: &Settings) -> Option<[&'static str; 4]> {
    if settings.clusters != 4 || settings.mode != Mode::Instant {
        return None;
    }
    let mut rows = PAPER.lines().map(|row| row.split('|').map(str::trim));
    rows.find_map(|mut row| {
        let is_it = row.next() == Some(policy) && row.next() == Some(settings.reward.as_str());
        is_it.then(|| row.collect::<Vec<_>>().try_into().ok())?
    })
}

/// Returns a Markdown table, aligned for the terminal. Each row holds means over episodes ± their standard deviations.
/// The paper's row follows the row of its policy.
pub fn table(settings: &Settings, rows: &[Row]) -> String {
    let mut lines = vec![COLUMNS.map(str::to_owned)];
    for Row { policy, summary } in rows {
        let line = |name: &str, [reward, rejected, cost, latency]: [String; 4]| {
            [name.to_owned(), reward, rejected, cost, latency]
        };
        lines.push(line(policy, summary.cells()));
        if let Some(cells) = paper(policy, settings) {
            lines.push(line("  in the paper", cells.map(str::to_owned)));
        }
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let rule = format!(
        "|{}|{}\n",
        "-".repeat(widths[0] + 2),
        widths[1..]
            .iter()
            .map(|width| format!("{}:|", "-".repeat(width + 1)))
            .collect::<String>()
    );
    let line = |cells: &[String; 5]| {
        let numbers = cells[1..].iter().zip(&widths[1..]);
        let numbers: String = numbers.map(|(cell, width)| format!(" {cell:>width$} |")).collect();
        format!("| {:<width$} |{numbers}\n", cells[0], width = widths[0])
    };
    let episodes = rows.first().map_or(0, |row| row.summary.episodes);
    let mut text = format!("{settings}: {episodes} episodes\n\n{}{rule}", line(&lines[0]));
    lines[1..].iter().for_each(|cells| text += &line(cells));
    text
}

/// Returns the rows as JSON with all digits. A value that no episode has is `null`.
pub fn json(settings: &Settings, rows: &[Row]) -> Value {
    json!({"environment": settings.to_string(), "policies": rows})
}
